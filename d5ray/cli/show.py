"""`d5ray show`: the verdict of a run, or what the runs of a series came to"""

import dataclasses
from typing import Annotated

import typer

from d5ray.recipes.engine.parsing.options import Json, NameOfAny, reading


@reading
def show(
    run: NameOfAny,
    environment: Annotated[
        bool, typer.Option("--environment", help="The machines, the versions, and the settings it ran with.")
    ] = False,
    json: Json = False,
) -> None:
    """Show a run's verdict, as given, and the parts of its steps; or what the runs of a series came to.

    Also what it is, and in which settings it differs from other runs of its recipe of which that is the same.
    """
    from d5ray.dashboards.terminal import environments, run_tables  # noqa: PLC0415
    from d5ray.dashboards.terminal import series_tables as series_shown  # noqa: PLC0415
    from d5ray.metrics.judge import run_series  # noqa: PLC0415
    from d5ray.metrics.judge.criteria import Verdict  # noqa: PLC0415
    from d5ray.metrics.judge.partners import siblings  # noqa: PLC0415
    from d5ray.metrics.views.run_labels import besides, label_of  # noqa: PLC0415

    found = run_series.find(run)
    if environment:
        facts = environments.of(run_series.runs_of(found))
        if json:
            run_tables.as_json(facts)
        else:
            environments.show(facts)
        return
    if isinstance(found, run_series.RunSeries):
        if json:
            run_tables.as_json(series_shown.as_data(found))
        else:
            series_shown.show(found)
        return
    rows, row = found.tables(without=("samples",))["verdicts"].to_pylist(), found.row
    other = besides([row, *siblings(found)])[0]
    if json:
        label = {"label": dataclasses.asdict(label_of(row)), "besides": other}
        run_tables.as_json({**row, **label, "folder": str(found.folder), "criteria": rows})
    else:
        run_tables.verdict(found, [Verdict(**each) for each in rows], row["verdict"], other)
