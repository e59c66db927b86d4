"""Estimators in words: of what a metric's value is the median, the mean or the largest"""

from collections.abc import Iterable, Mapping
from typing import Any

from d5ray.metrics.views.verdicts import KNOWN


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
