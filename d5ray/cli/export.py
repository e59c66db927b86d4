"""`d5ray export`: a run for other programs"""

from pathlib import Path
from typing import Annotated

import typer

from d5ray.cli import options
from d5ray.cli.run_names import NameOfAny, reading
from d5ray.recipes.engine.command import Json


@reading
def export(
    run: NameOfAny,
    to: Annotated[str, typer.Option(metavar="FORMAT", help="csv, json, benchmarker, tensorboard or mlflow.")],
    out: Annotated[
        Path | None, typer.Option(metavar="PATH", callback=options.target, help="Where; by default here.")
    ] = None,
    json: Json = False,
) -> None:
    """Write a run for other programs; nothing that exists is overwritten.

    Of a series every run is written: into one MLflow store, otherwise into the folder PATH side by side.
    """
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.exports import catalogue  # noqa: PLC0415
    from d5ray.metrics.judge import run_series  # noqa: PLC0415

    written = catalogue.export_all(run_series.find(run), to, out)
    if json:
        run_tables.as_json({"to": to, "paths": {name: str(path) for name, path in written.items()}})
    else:
        run_tables.pairs({name: str(path) for name, path in written.items()})
