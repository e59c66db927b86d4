"""The table `summary`: for each metric and phase of a run the median, its interval, spread and outliers"""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from d5ray.metrics.judge.criteria import RunTables
from d5ray.metrics.statistics.estimates import Floats, Integers, edges_of, over_steps
from d5ray.metrics.statistics.intervals import Estimate, median_interval, tukey_outliers
from d5ray.metrics.statistics.time_series import Quantile

STOPPED = "measured"  # the event that says why the repetitions of a measurement ended
KEYS = ("run_id", "metric", "unit", "scope", "phase")
SUMMARY = pa.schema(
    [
        *((name, pa.utf8()) for name in KEYS),
        ("n", pa.int64()),  # values; null ones are not among them
        ("unavailable", pa.int64()),  # null ones
        ("median", pa.float64()),
        ("ci_lo", pa.float64()),  # 95 %; null where there is too little for an interval
        ("ci_hi", pa.float64()),
        ("sample_unit", pa.utf8()),  # what counts once in it
        ("p95", pa.float64()),
        ("cv", pa.float64()),  # standard deviation over mean
        ("outliers", pa.int64()),  # beyond Tukey's fences: counted, and among all the figures
        ("stop_reason", pa.utf8()),
    ]
)


def summary(run: RunTables) -> pa.Table:
    """A row for each (run_id, metric, unit, scope, phase), over all agents, steps and repetitions.

    n, median, p95, cv and outliers are of the values as they are. The interval is of the median over what may
    be called independent: fresh processes where there are several (`rep`), else as many steps as they are
    worth, the ranks' values of a step being one. What a metric makes of its rows (the slowest rank, a sum) is
    its `estimate`.
    """
    table = run["samples"].unify_dictionaries().select([*KEYS, "rep", "step", "rank", "value"])
    if not table.num_rows:
        return SUMMARY.empty_table()
    codes = [table[name].combine_chunks() for name in KEYS]
    words = [code.dictionary.to_pylist() for code in codes]
    keys: Integers = np.stack([code.indices.to_numpy().astype(np.int64) for code in codes])
    rest = [table[name].fill_null(-1).to_numpy().astype(np.int64) for name in ("rep", "step", "rank")]
    order = np.lexsort((*rest[::-1], *keys[::-1]))
    keys, (rep, step, _) = keys[:, order], (column[order] for column in rest)
    values: Floats = table["value"].to_numpy()[order]
    there = table["value"].is_valid().to_numpy()[order]
    reasons, rows = _StopReasons(run), []
    for a, b in pairwise(edges_of(*keys)):
        named = {name: text[code] for name, text, code in zip(KEYS, words, keys[:, a], strict=True)}
        kept = there[a:b]
        own = values[a:b][kept]
        row = {**named, "n": len(own), "unavailable": int(b - a - len(own)), "stop_reason": reasons(named)}
        rows.append(row | (_figures(own, rep[a:b][kept], step[a:b][kept]) if len(own) else {}))
    return pa.Table.from_pylist(rows, schema=SUMMARY)


def _figures(values: Floats, rep: Integers, step: Integers) -> dict[str, Any]:
    mean = float(np.mean(values)) if np.isfinite(values).all() else 0.0
    figures = {
        "median": float(np.median(values)),
        "p95": float(np.quantile(values, 0.95, method="inverted_cdf")),
        "cv": float(np.std(values, ddof=1)) / abs(mean) if mean and len(values) > 1 else None,
    }
    if np.isnan(values).any():
        return figures | {"outliers": None}
    found = _interval(values, rep, step)
    interval = {"ci_lo": found.low, "ci_hi": found.high, "sample_unit": found.sample_unit}
    return figures | interval | {"outliers": tukey_outliers(values[np.isfinite(values)])}


def _interval(values: Floats, rep: Integers, step: Integers) -> Estimate:
    edges = edges_of(rep)
    if len(edges) > 2:
        medians = [float(np.median(values[a:b])) for a, b in pairwise(edges)]
        interval = median_interval(medians)
        low, high = interval or (None, None)
        return Estimate(None, low, high, len(medians), "fresh processes")
    moments = edges_of(step) if (step >= 0).all() else np.arange(len(values) + 1)
    each = np.array([np.median(values[a:b]) for a, b in pairwise(moments)])
    one_run = np.zeros(len(each), np.int64)
    return over_steps(one_run, Quantile(each), "moments")


class _StopReasons:
    """Why measuring ended: of a measurement's own repetitions, or of the run."""

    def __init__(self, run: RunTables) -> None:
        self._own: dict[tuple[str, str, str], str] = {}
        events = run["events"].select(["run_id", "name", "detail"]).to_pylist() if "events" in run else []
        for event in events:
            if event["name"] == STOPPED:
                detail = json.loads(event["detail"])
                self._own[event["run_id"], detail["metric"], detail["scope"]] = detail["stop_reason"]
        runs = run["runs"].select(["run_id", "stop_reason"]).to_pylist() if "runs" in run else []
        self._of_run = {row["run_id"]: row["stop_reason"] for row in runs}

    def __call__(self, named: dict[str, str]) -> str | None:
        own = self._own.get((named["run_id"], named["metric"], named["scope"]))
        return own or self._of_run.get(named["run_id"])
