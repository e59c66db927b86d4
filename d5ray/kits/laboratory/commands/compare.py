"""`d5ray compare`: which of two runs, or groups of runs, is better"""

import dataclasses
from typing import Annotated

import typer

from d5ray.failures.exit_codes import EXIT_CODES, FAIL, INCONCLUSIVE
from d5ray.recipes.engine.parsing.options import Json, reading


@reading
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A run, a series, or several: a,b or a*.")],
    second: Annotated[
        str | None,
        typer.Argument(metavar="[B]", help="What is compared with it, likewise. Left out: say what can be."),
    ] = None,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="Only this metric; may be given several times.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Ratios this near to 1 are the same.")] = 0.02,
    json: Json = False,
) -> None:
    """Show which of two runs, or groups of runs, is better by each metric. Exit code 1: B is worse in one.

    Runs are paired in the order in which they started; fewer than six pairs decide nothing. A metric's own
    verdict is wrong for equal sides in at most 5 of 100 cases, and so is the exit code 1, which is of all
    metrics together, however many they are. Exit code 2: they are incomparable, since what is FIXED or the
    data differ, or nothing is decided.

    Without B: list runs that A can be compared with, with exit code 2.
    """
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.kits.laboratory.tables import comparison as compared  # noqa: PLC0415
    from d5ray.metrics.judge import comparison  # noqa: PLC0415
    from d5ray.metrics.judge.partners import partners  # noqa: PLC0415
    from d5ray.metrics.record.reader import list_runs  # noqa: PLC0415

    if second is None:
        one = comparison.runs_named(first)[0]
        proposed = partners(one, list_runs())
        if json:
            run_tables.as_json({"first": one.name, "partners": [run.name for run in proposed]})
        else:
            compared.partners(one.name, proposed)
        raise typer.Exit(EXIT_CODES[INCONCLUSIVE])
    sides = comparison.runs_named(first), comparison.runs_named(second)
    found = comparison.compare(*sides, tolerance, metric or comparison.METRICS)
    if json:
        run_tables.as_json(dataclasses.asdict(found))
    else:
        compared.show(found, partners(sides[0][0], list_runs()) if found.incomparable else ())
    if found.together == "worse":
        raise typer.Exit(EXIT_CODES[FAIL])
    if found.together == "inconclusive":
        raise typer.Exit(EXIT_CODES[INCONCLUSIVE])
