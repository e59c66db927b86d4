"""`d5ray show`: the verdict of a run, or what the runs of a series came to"""

from typing import Annotated

import typer

from d5ray.cli.run_names import NameOfAny, reading
from d5ray.recipes.engine.command import Json


@reading
def show(
    run: NameOfAny,
    environment: Annotated[
        bool, typer.Option("--environment", help="The machines, the versions, and the settings it ran with.")
    ] = False,
    json: Json = False,
) -> None:
    """Show a run's verdict, as given, and the parts of its steps; or what the runs of a series came to."""
    from d5ray.dashboards.terminal import environments, run_tables  # noqa: PLC0415
    from d5ray.dashboards.terminal import series_tables as series_shown  # noqa: PLC0415
    from d5ray.metrics.definitions.catalogue import Verdict  # noqa: PLC0415
    from d5ray.metrics.judge import run_series  # noqa: PLC0415

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
    rows = found.tables()["verdicts"].to_pylist()
    if json:
        run_tables.as_json({**found.row, "folder": str(found.folder), "criteria": rows})
    else:
        run_tables.verdict(found, [Verdict(**row) for row in rows], found.row["verdict"])
