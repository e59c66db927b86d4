"""The commands that show runs in other people's tools: `d5ray dashboard grafana`"""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look at runs: Grafana's dashboards.", no_args_is_help=True)


@app.callback()
def dashboard() -> None:
    """Look at runs in Grafana."""


@app.command()
def grafana(
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where; by default where the Grafana of the Ray that runs looks."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(help="That Ray, HOST:PORT; by default RAY_ADDRESS, or the one here."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")] = False,
) -> None:
    """Write dashboards for Grafana, and alerts and settings for Prometheus, of what Ray shows of runs."""
    from d5ray.dashboards import placing, terminal  # noqa: PLC0415 - quick for those who only want help

    placed = placing.place(output, address)
    if json:
        terminal.as_json(
            {
                "dashboards": [str(path) for path in placed.dashboards],
                "alerts": str(placed.alerts),
                "settings": str(placed.settings),
                "next": placed.lines,
            }
        )
        return
    written = {path.name: str(path.parent) for path in (*placed.dashboards, placed.alerts, placed.settings)}
    terminal.pairs(written)
    for line in placed.lines:
        typer.echo(line)
