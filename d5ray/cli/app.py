"""The command line: `d5ray run`, `list`, `runs`, `show`, `compare`, `replay`, `sql`, `dashboard`, …"""

from typing import Annotated

import typer

from d5ray.cli import bench, dashboard
from d5ray.cli.check import check
from d5ray.cli.compare import compare
from d5ray.cli.doctor import doctor
from d5ray.cli.export import export
from d5ray.cli.list import list_recipes
from d5ray.cli.network import network
from d5ray.cli.replay import replay
from d5ray.cli.report import report
from d5ray.cli.rerun import rerun
from d5ray.cli.resize import resize
from d5ray.cli.run import run
from d5ray.cli.run_names import reading
from d5ray.cli.runs import runs
from d5ray.cli.show import show
from d5ray.cli.sql import sql
from d5ray.cli.stop import stop
from d5ray.cli.timeline import timeline
from d5ray.cli.tune import tune
from d5ray.cli.version import shown
from d5ray.failures.finish import finish

app = typer.Typer(
    name="d5ray",
    help="Replace, run and measure any part of (distributed) deep learning.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def d5ray(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=shown, help="Say the version, and end.")
    ] = False,
) -> None:
    """Replace, run and measure any part of (distributed) deep learning."""


app.command()(run)
app.command()(reading(sql))
app.add_typer(bench.app, name="bench")
app.add_typer(dashboard.app, name="dashboard")
app.command("list")(list_recipes)
app.command()(resize)
for each in (
    runs, show, stop, compare, check, tune, replay, rerun, export, report, timeline, network,
    doctor,
):  # fmt: skip
    app.command()(each)


def main() -> None:
    """Run the command line `d5ray`; the entry point of the installed program."""
    finish(app)
