"""`d5ray export`: a run for other programs"""

from pathlib import Path
from typing import Annotated

import typer

from d5ray.errors import ConfigurationError, nearest
from d5ray.recipes.engine.parsing import options
from d5ray.recipes.engine.parsing.options import NameOfAny, Trust, reading


@reading
def export(
    run: NameOfAny,
    to: Annotated[
        str,
        typer.Option(
            metavar="FORMAT",
            help="csv, benchmarker, tensorboard or mlflow; or the trained model: safetensors, "
            "state_dict, onnx or keras.",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="PATH", callback=options.target, help="Where; by default here.")
    ] = None,
    trust: Trust = False,
    json: options.Json = False,
) -> None:
    """Write a run, or the model that it has trained, for other programs; nothing is overwritten.

    Of a series every run is written: into one MLflow store, otherwise into the folder PATH side by side. A
    model may also be that of a checkpoint, whose folder stands in the place of the run.
    """
    from d5ray.archive import models  # noqa: PLC0415
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.exports import catalogue  # noqa: PLC0415
    from d5ray.metrics.judge import run_series  # noqa: PLC0415

    known = (*catalogue.FORMATS, *models.FORMATS)
    if to not in known:
        raise ConfigurationError(f"there is no format {to!r}: {nearest(to, known)}")
    if to not in models.FORMATS:
        written = catalogue.export_all(run_series.find(run), to, out)
    elif models.is_checkpoint(run):
        written = {run: models.export_model(run, to, out, trust=trust)}
    else:
        written = models.export_all(run_series.find(run), to, out, trust=trust)
    if json:
        run_tables.as_json({"to": to, "paths": {name: str(path) for name, path in written.items()}})
    else:
        run_tables.pairs({name: str(path) for name, path in written.items()})
