"""The command `d5ray bench operators`"""

from pathlib import Path
from typing import Annotated

import typer

from d5ray.checks import check_target
from d5ray.failures.exit_codes import INTERRUPTED
from d5ray.ops.deepbench.problems import GROUPS
from d5ray.recipes.engine import command
from d5ray.recipes.engine.operators.measurement import OperatorBench, seconds_of, usable_cores
from d5ray.recipes.engine.recipe import EXIT_CODES, INCONCLUSIVE

app = typer.Typer(help="Measure parts of deep learning at published sizes.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure parts of deep learning at published sizes."""


@app.command()
def operators(
    suite: Annotated[str, typer.Option(help="Whose sizes: deepbench.")] = "deepbench",
    frameworks: Annotated[
        str, typer.Option(help="Some of torch, tensorflow, numpy, cupy, with commas between them.")
    ] = "torch,numpy",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    budget: Annotated[str, typer.Option(help="How long to measure: 60s, 5m, 1h.")] = "60s",
    mode: Annotated[str, typer.Option(help="training (with backward passes) or inference.")] = "training",
    problems: Annotated[str, typer.Option(help="Some of gemm, conv, rnn.")] = ",".join(GROUPS),
    dtype: Annotated[str, typer.Option(help="float32, float64, float16 or bfloat16.")] = "float32",
    processes: Annotated[
        int, typer.Option(help="Fresh processes of each framework; an interval needs 6.")
    ] = 6,
    threads: Annotated[
        int | None, typer.Option(help="Of an operator on a CPU; by default all usable cores.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the order of problems, and of their inputs.")] = 0,
    to: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Also export the run: benchmarker, csv, json, …")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="PATH", callback=check_target, help="Where the export goes.")
    ] = None,
    address: command.Address = None,
    json: command.Json = False,
) -> None:
    """Time operators under several frameworks in turn, each in fresh processes of its own.

    The problems are measured in random order until the budget ends; what it does not reach is listed. Exit
    code 2: nothing was measured.
    """
    job = OperatorBench(
        suite=suite,
        mode=mode,
        groups=_listed(problems),
        frameworks=_listed(frameworks),
        device=device,
        dtype=dtype,
        budget_seconds=seconds_of(budget),
        processes=processes,
        threads=usable_cores() if threads is None else threads,
        seed=seed,
    )
    from d5ray.dashboards.terminal import operator_tables as shown  # noqa: PLC0415 - quick for those who only want help
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.exports import catalogue  # noqa: PLC0415
    from d5ray.recipes.engine.operators import runs as bench_runs  # noqa: PLC0415 - imports Ray

    if to is not None:
        catalogue.check_free(to, out)
    run = bench_runs.run(job, address, quiet=json)
    data = shown.as_data(run)
    if to is not None:
        data["exported"] = str(catalogue.export(run, to, out))
    if json:
        run_tables.as_json(data)
    else:
        shown.show(run)
    if data["status"] == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if data["status"] != "completed" or not data["operators"]:
        raise typer.Exit(EXIT_CODES[INCONCLUSIVE])


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
