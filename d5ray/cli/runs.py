"""`d5ray runs`: the runs and series that there are"""

import dataclasses
from typing import Annotated

import typer

from d5ray.recipes.engine.parsing.options import Json, reading


@reading
def runs(
    recipe: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs of this recipe; * stands for any part.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only runs of this distributed optimizer: DPSGD, or *SGD."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Only runs that began since: 30m, 2h, 3d, 1w, today, 2026-11-25."),
    ] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only runs with the verdict FAIL, or that did not complete.")
    ] = False,
    json: Json = False,
) -> None:
    """The runs kept under D5RAY_HOME, newest first, and the series that runs are parts of.

    Beside each stands what it is (model, data, method, optimizer, topology, real or simulated), and in which
    settings it differs from the others of which that is the same.
    """
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.dashboards.terminal import series_tables as series_shown  # noqa: PLC0415
    from d5ray.display.console import err  # noqa: PLC0415
    from d5ray.metrics.judge.run_filters import RunFilter, instant  # noqa: PLC0415
    from d5ray.metrics.judge.run_series import list_series  # noqa: PLC0415
    from d5ray.metrics.record.reader import looked_for  # noqa: PLC0415
    from d5ray.metrics.views.run_labels import label_of  # noqa: PLC0415

    chosen = RunFilter(recipe, method, None if since is None else instant(since), failed)
    known, unread = looked_for()
    rows = [(run, run.row) for run in known]
    chosen.check([row for _, row in rows])
    found = [(run, row) for run, row in rows if chosen.takes(row)]
    if json:
        run_tables.as_json([{**row, "label": dataclasses.asdict(label_of(row))} for _, row in found])
    else:
        run_tables.runs([run for run, _ in found])
        series = [each for each in list_series() if chosen.takes_series(each.row, [row for _, row in found])]
        if series:
            series_shown.listed(series)
        if rows and not found:
            err().print(f"! {chosen.nothing([row for _, row in rows])}")
    for reason in unread:
        err().print(f"! {reason}")
