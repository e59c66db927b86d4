"""`d5ray check`: whether the folder of a run or series keeps the rules"""

import typer

from d5ray.failures.exit_codes import EXIT_CODES, FAIL
from d5ray.recipes.engine.parsing.options import Json, NameOfAny, reading


@reading
def check(
    run: NameOfAny,
    json: Json = False,
) -> None:
    """Check that the folder of a run or series keeps the rules: complete, consistent, its verdict its rows'.

    Nothing in the folder is executed. Exit code 1: a rule is broken, or a file is not what it was when the
    run ended. It finds accidents and contradictions, not a careful liar.
    """
    from d5ray.display.console import as_json, out, styled  # noqa: PLC0415
    from d5ray.kits.laboratory.checking import checker, series_checker  # noqa: PLC0415
    from d5ray.metrics.judge import run_series  # noqa: PLC0415
    from d5ray.metrics.record import manifest  # noqa: PLC0415

    found = run_series.find(run)
    if isinstance(found, run_series.RunSeries):
        folders = [found.folder, *(each.folder for each in found.runs)]
        broken, left = series_checker.violations(found), [checker.LIMIT]
    else:
        folders = [found.folder]
        broken, left = checker.violations(found), checker.unchecked(found)
    broken = [*(text for folder in folders for text in manifest.differences(folder)), *broken]
    if json:
        as_json({"run_id": found.name, "violations": broken, "unchecked": left})
    else:
        word, colour = ("FAIL", "red") if broken else ("SUCCESS", "green")
        out().print(f"d5ray check  {found.name}", styled(f"  {word}", style=colour))
        for text in broken:
            out().print(f"! {text}")
        for text in left:
            out().print(f"· {text}", style="dim")
    if broken:
        raise typer.Exit(EXIT_CODES[FAIL])
