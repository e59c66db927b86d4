"""The formats that a run can be exported to, by name"""

from pathlib import Path

from d5ray.checks import check_kind, check_path
from d5ray.errors import ConfigurationError, nearest
from d5ray.metrics.exports.benchmarker import BenchmarkerExporter
from d5ray.metrics.exports.csv_tables import CSVExporter
from d5ray.metrics.exports.exporter import Exporter
from d5ray.metrics.exports.mlflow_store import MLflowExporter
from d5ray.metrics.exports.tensorboard_events import TensorBoardExporter
from d5ray.metrics.judge.run_series import RunSeries
from d5ray.metrics.record.reader import Run

FORMATS: dict[str, Exporter] = {
    exporter.name: exporter
    for exporter in (CSVExporter(), BenchmarkerExporter(), TensorBoardExporter(), MLflowExporter())
}


def export(run: Run, to: str, out: str | Path | None = None) -> Path:
    """Write the run in this format; where it went.

    Raises `ConfigurationError` for an unknown format, a missing package, and where something is in the way.
    """
    check_kind("run", run, Run, 'a Run, such as Run("last")')
    return _named(to).export(run, None if out is None else check_path("out", out))


def check_free(to: str, out: Path | None) -> None:
    """Raise `ConfigurationError` for an unknown format, and for a target that is there already."""
    exporter = _named(to)
    if out is not None and not exporter.gathers:
        exporter.free(out)


def export_all(found: Run | RunSeries, to: str, out: Path | None = None) -> dict[str, Path]:
    """Write a run, or every run of a series, in this format; where each went, by its name.

    The runs of a series share one store, or go side by side into the folder `out`.
    """
    exporter = _named(to)
    if isinstance(found, Run):
        return {found.name: exporter.export(found, out)}
    runs, target = found.counted(), out
    if not runs:
        raise ConfigurationError(
            f"no run of the series {found.name} came to an end: there is nothing to write"
        )
    if not exporter.gathers:
        target = exporter.free(out or Path(f"{found.name}-{to}"))
    written = {}
    for run in runs:
        place = target if exporter.gathers or target is None else target / f"{run.name}{exporter.ending}"
        written[run.name] = exporter.export(run, place)
    return written


def _named(to: str) -> Exporter:
    check_kind("to", to, str, "the name of a format")
    if to not in FORMATS:
        raise ConfigurationError(f"there is no format {to!r}: {nearest(to, FORMATS)}")
    return FORMATS[to]
