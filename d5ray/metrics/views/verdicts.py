"""A run's verdict: as it was given, or as it would be given now"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from d5ray.errors import StorageError
from d5ray.metrics.definitions.catalogue import CATALOGUE
from d5ray.metrics.definitions.convergence import StepsToAccuracy, TimeToAccuracy
from d5ray.metrics.definitions.latency import InferenceLatency, StepLatency
from d5ray.metrics.definitions.utilisation import ModelFlopUtilisation, TokensPerSecond
from d5ray.metrics.judge.criteria import Criterion, Metric, Verdict
from d5ray.metrics.judge.stored_criteria import criterion_of
from d5ray.metrics.record.schema import TABLES, checked, table_of
from d5ray.metrics.views.view import RunView
from d5ray.names.kits import parts

KNOWN: dict[str, type[Metric]] = CATALOGUE | {
    metric.name: metric
    for metric in (
        TimeToAccuracy,
        StepsToAccuracy,
        StepLatency,
        InferenceLatency,
        TokensPerSecond,
        ModelFlopUtilisation,
        *parts("metrics of other metrics").values(),
    )
}
OPEN: Final = "INCONCLUSIVE"
LATER = "known when the run has ended"


def so_far(view: RunView) -> pa.Table:
    """The table `verdicts` of a run; while it goes on, its criteria judged by the rows that are there.

    A criterion of a metric that is not d5ray's own is open until the run ends.
    """
    given = view.ask("SELECT * FROM verdicts")
    if given.num_rows or not view.row.get("criteria"):
        return checked(given, TABLES["verdicts"])
    criteria = [_criterion(each) for each in json.loads(view.row["criteria"])]
    tables = _tables(view, [criterion for criterion in criteria if isinstance(criterion, Criterion)])
    return table_of("verdicts", [_judged(view, criterion, tables) for criterion in criteria])


def _criterion(described: Mapping[str, Any]) -> Criterion | Mapping[str, Any]:
    """The criterion again that `Criterion.described` gave; as it stands where that is not possible."""
    try:
        made = criterion_of(described)
    except StorageError:  # of another version
        return described
    return described if made is None else made


def _judged(
    view: RunView, criterion: Criterion | Mapping[str, Any], tables: Mapping[str, pa.Table]
) -> dict[str, Any]:
    if isinstance(criterion, Criterion):
        return criterion.judge(tables).row
    return Verdict(
        view.name, str(criterion["label"]), str(criterion["unit"]), criterion["relation"],
        criterion["target"], None, None, None, 0, "", OPEN, LATER,
    ).row  # fmt: skip


def _tables(view: RunView, criteria: list[Criterion]) -> dict[str, pa.Table]:
    """The tables that these criteria read, and no more."""
    read = [criterion.metric.reads() for criterion in criteria]
    query = "SELECT * FROM samples"
    if all(read):
        query += " WHERE list_contains($metrics, metric)"
    wanted = sorted({name for names in read for name in names})
    tables = {"samples": view.ask(query, metrics=wanted)}
    for name in ("events", "runs", "environment"):
        tables[name] = view.ask(f"SELECT * FROM {name}")
    return {name: checked(table, TABLES[name]) for name, table in tables.items()}


def estimators(metrics: Iterable[str], rows: Iterable[Mapping[str, Any]] = ()) -> dict[str, str]:
    """The estimator of each metric in words, by the metric's name without arguments.

    metrics: as verdicts have them, with arguments; rows: of the run's table `metrics`, for what is no metric
    of d5ray's own.

    >>> estimators(["step_time", "time_to_accuracy(accuracy=0.9)", "nobody's"])["step_time"]
    'largest over ranks, median over steps'
    """
    told = {str(row["name"]): str(row["aggregation"] or "") for row in rows}
    found: dict[str, str] = {}
    for label in metrics:
        name = label.partition("(")[0]
        kind = KNOWN.get(name)
        text = told.get(label) or told.get(name) or ("" if kind is None else kind.aggregation)
        if text:
            found.setdefault(name, text)
    return found
