"""`d5ray runs`: the runs and series that there are"""

from d5ray.cli.run_names import reading
from d5ray.recipes.engine.command import Json


@reading
def runs(json: Json = False) -> None:
    """The runs kept under D5RAY_HOME, newest first, and the series that runs are parts of."""
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.dashboards.terminal import series_tables as series_shown  # noqa: PLC0415
    from d5ray.display.console import err  # noqa: PLC0415
    from d5ray.metrics.judge.run_series import list_series  # noqa: PLC0415
    from d5ray.metrics.record.reader import looked_for  # noqa: PLC0415

    found, unread = looked_for()
    if json:
        run_tables.as_json([run.row for run in found])
    else:
        run_tables.runs(found)
        if several := list_series():
            series_shown.listed(several)
    for reason in unread:
        err().print(f"! {reason}")
