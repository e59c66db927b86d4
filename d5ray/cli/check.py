"""`d5ray check`: whether the folder of a run or series keeps the rules"""

from pathlib import Path
from typing import Annotated

import typer

from d5ray.cli import options
from d5ray.cli.run_names import NameOfAny, reading
from d5ray.recipes.engine.command import Json
from d5ray.recipes.engine.recipe import EXIT_CODES, FAIL


@reading
def check(
    run: NameOfAny,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="PUBLIC",
            callback=options.source,
            help="Also: is every file as the key's owner signed it?",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check that the folder of a run or series keeps the rules: complete, consistent, its verdict its rows'.

    Nothing in the folder is executed. Exit code 1: a rule is broken. It finds accidents and contradictions,
    not a careful liar.
    """
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.judge import run_series  # noqa: PLC0415
    from d5ray.recipes.engine.checking import (  # noqa: PLC0415
        checker,
        series_checker,
        signatures,
    )

    found = run_series.find(run)
    signed = signatures.violations(found, key)
    if isinstance(found, run_series.RunSeries):
        broken = signed + series_checker.violations(found)
    else:
        broken = signed + checker.violations(found)
    left = [checker.LIMIT] if isinstance(found, run_series.RunSeries) else checker.unchecked(found)
    if json:
        run_tables.as_json({"run_id": found.name, "violations": broken, "unchecked": left})
    else:
        run_tables.checked(found, broken, left)
    if broken:
        raise typer.Exit(EXIT_CODES[FAIL])
