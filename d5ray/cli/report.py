"""`d5ray report`: runs as a page, or as a text with figures"""

from pathlib import Path
from typing import Annotated

import typer

from d5ray.recipes.engine.parsing import options
from d5ray.recipes.engine.parsing.options import reading


@reading
def report(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Runs or series; also a,b or a*, which stay together.")
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            metavar="PATH",
            callback=options.target,
            help="A .html page, a .md text, or a folder for all.",
        ),
    ] = Path("report.html"),
    json: options.Json = False,
) -> None:
    """A page, or a text and figures for a paper: verdicts, curves, times, scaling, comparison, environment.

    report.html needs nothing else, report.md has its figures beside it as PNG and SVG, and a folder gets all.
    """
    from d5ray.dashboards.report import writing  # noqa: PLC0415
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415

    written = writing.write(runs, output)
    if json:
        run_tables.as_json({"files": [str(path) for path in written]})
    else:
        run_tables.output_files(written)
