"""A run in an MLflow store, `PATH/mlflow.db`: `mlflow ui --backend-store-uri sqlite:///PATH/mlflow.db`

The recipe is MLflow's experiment, the run is its run; the experiment's values are parameters, each curve is a
metric `phase/metric/agent`, what is known of the environment, the verdict and the hashes are tags. A store
that exists gets one run more; a run that it has already is refused.

MLflow's key of a metric's point is (key, timestamp in ms, step, value): two equal values of one step within
a millisecond, as of an agent that was started again, would be one. Such points are a millisecond apart here.
An infinite value becomes the largest number, which is what MLflow keeps of one.
"""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.metrics.exports.curves import RecordedCurve, curves, flat, words
from d5ray.metrics.exports.exporter import Exporter, needed
from d5ray.metrics.record.files import storing
from d5ray.metrics.record.reader import Run

MOST_METRICS, MOST_PARAMETERS, MOST_TAGS = 1000, 100, 100  # of one call
LONGEST_PARAMETER, LONGEST_TAG = 6000, 8000  # characters
ENDS = {"completed": "FINISHED", "interrupted": "KILLED", "running": "RUNNING"}  # any other: FAILED


@final
class MLflowExporter(Exporter):
    """An exporter to a store of MLflow, which gets one more run."""

    name: ClassVar[str] = "mlflow"
    ending: ClassVar[str] = "-mlflow"
    gathers: ClassVar[bool] = True

    def export(self, run: Run, out: Path | None) -> Path:
        target = Path("mlflow") if out is None else out
        if target.exists() and not (target / "mlflow.db").is_file():
            raise ConfigurationError(
                f"{target} exists, and is no MLflow store of d5ray's (it has no mlflow.db): name another "
                "place with --out"
            )
        with storing(target), _quiet():
            client: Any = needed("mlflow.tracking", "MLflow").MlflowClient
            entities = needed("mlflow.entities", "MLflow")
            needed("alembic", "Alembic")
            target.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{(target / 'mlflow.db').resolve()}"
            logging.getLogger("mlflow").setLevel(logging.WARNING)  # it tells of every table that it makes
            _Store(client(uri, registry_uri=uri), entities, target).add(run)
        return target


class _Store:
    def __init__(self, client: Any, entities: Any, folder: Path) -> None:
        self._client, self._entities, self._folder = client, entities, folder

    def add(self, run: Run) -> None:
        row = run.row
        experiment = self._experiment(row["recipe"] or "d5ray")
        known = self._client.search_runs([experiment], f"tags.`d5ray.run_id` = '{run.name}'")
        if known:
            raise ConfigurationError(
                f"{self._folder} has the run {run.name} already, as {known[0].info.run_id}: delete it there "
                "first, or name another store with --out"
            )
        made = self._client.create_run(
            experiment, start_time=_ms(row["started"]), run_name=run.name, tags=self._tags(run)
        ).info.run_id
        try:
            self._fill(made, run)
            status = ENDS.get(row["status"], "FAILED")
            self._client.set_terminated(made, status, _ms(row["ended"] or row["started"]))
        except BaseException:
            self._client.delete_run(made)  # half a run is none
            raise

    def _experiment(self, name: str) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        place = (self._folder / "artifacts").resolve().as_uri()
        return str(self._client.create_experiment(name, artifact_location=place))

    def _tags(self, run: Run) -> dict[str, str]:
        row = run.row
        columns = ("recipe", "recipe_hash", "status", "stop_reason", "verdict", "git", "series", "seed")
        tags = {f"d5ray.{name}": str(row[name]) for name in columns if row[name] is not None}
        tags |= {"d5ray.run_id": run.name, "mlflow.source.name": row["recipe"] or "d5ray"}
        return {name: value[:LONGEST_TAG] for name, value in tags.items()}

    def _fill(self, made: str, run: Run) -> None:
        tables = run.tables()
        parameters = flat(json.loads(run.row["experiment"] or "{}"))
        parameter, tag, metric = (getattr(self._entities, name) for name in ("Param", "RunTag", "Metric"))
        for part in _parts(list(parameters.items()), MOST_PARAMETERS):
            told = [parameter(words(key.replace("/", ".")), value[:LONGEST_PARAMETER]) for key, value in part]
            self._client.log_batch(made, params=told)
        facts = [
            tag(words(f"environment.{fact['node']}.{fact['key']}"), fact["value"][:LONGEST_TAG])
            for fact in tables["environment"].to_pylist()
        ]
        for part in _parts(facts, MOST_TAGS):
            self._client.log_batch(made, tags=part)
        for curve in curves(run):
            key = words(curve.phase, curve.metric, curve.scope, curve.agent)
            points = [
                metric(key, float(value), instant, int(step))
                for value, instant, step in zip(curve.values, _instants(curve), curve.steps, strict=True)
            ]
            for part in _parts(points, MOST_METRICS):
                self._client.log_batch(made, metrics=part)


def _instants(curve: RecordedCurve) -> list[int]:
    """The instants in ms; no point of a step has the value and the instant of another one."""
    seen: set[tuple[int, float, int]] = set()
    instants = []
    for step, value, instant in zip(curve.steps, curve.values, curve.instants, strict=True):
        moment = int(instant) // 1_000_000
        number = 0.0 if np.isnan(value) else float(value)  # NaN is kept as 0 with a mark
        while (int(step), number, moment) in seen:
            moment += 1
        seen.add((int(step), number, moment))
        instants.append(moment)
    return instants


def _parts(items: list[Any], size: int) -> Iterator[list[Any]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]


def _ms(instant: Any) -> int | None:
    return None if instant is None else int(instant.timestamp() * 1000)


@contextmanager
def _quiet() -> Iterator[None]:
    """MLflow reports its use over the network unless it is told not to, and warns of its own libraries."""
    names = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
