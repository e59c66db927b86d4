"""Estimates from the rows of `samples`: one value per step, and its interval over steps or runs."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.checks import check_kind, check_text
from d5ray.errors import ConfigurationError
from d5ray.metrics.judge.criteria import RunTables
from d5ray.metrics.statistics.intervals import Estimate, median_interval
from d5ray.metrics.statistics.time_series import OverTime

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FEWEST_RUNS = 6  # below that the exact interval of a median does not exist (95%)


class Rows:
    """The rows of one metric as columns of equal length, ordered by run, then by the time of writing.

    run, agent: numbers from 0; rank, step, epoch (−1 where the row has none), attempt; wall: ns; value: NaN
    stays NaN, and rows whose value is null are left out, counted in `unavailable`, and say why in `reasons`.
    """

    def __init__(self, run: RunTables, metric: str, phase: str | None = None) -> None:
        check_kind("run", run, Mapping, "the tables of a run, such as Run('last').tables()")
        if "samples" not in run:
            raise ConfigurationError("run has no table 'samples': give the tables of a run")
        check_kind("metric", metric, str, "the name of a metric")
        check_kind("phase", phase, str | None, "'train', 'warmup', or None for all")
        for name, text in (("metric", metric), ("phase", phase or "")):
            check_text(name, text)
        table = run["samples"].unify_dictionaries()
        runs, agents = table["run_id"].unique(), table["agent"].unique()  # numbered alike for every metric
        keep = pc.equal(table["metric"], metric)
        if phase is not None:
            keep = pc.and_(keep, pc.equal(table["phase"], phase))
        table = table.filter(keep)
        missing = table.filter(pc.is_null(table["value"], nan_is_null=False))["status"]
        self.unavailable = len(missing)
        self.reasons = tuple(reason for reason in missing.unique().to_pylist() if reason != "ok")
        table = table.filter(pc.is_valid(table["value"]))
        run_number, agent = _numbered(table["run_id"], runs), _numbered(table["agent"], agents)
        attempt, seq = _integers(table["attempt"]), _integers(table["seq"])
        order = np.lexsort((seq, attempt, agent, run_number))
        self.run = run_number[order]
        self.agent = agent[order]
        self.attempt = attempt[order]
        self.rank = _integers(table["rank"])[order]
        self.step = _integers(table["step"])[order]
        self.epoch = _integers(table["epoch"])[order]
        self.value: Floats = table["value"].to_numpy()[order]
        self.wall = _integers(table["t_wall"])[order]
        self._table, self._order = table, order

    def words(self, column: str) -> list[str]:
        """A column of words, such as `scope` or `node`."""
        found: list[str] = self._table[column].cast(pa.utf8()).take(self._order).to_pylist()
        return found

    def __len__(self) -> int:
        return len(self.value)

    def why_none(self, metric: str) -> str:
        """The reason to give when there is no row with a value."""
        if self.reasons:
            return "; ".join(self.reasons)
        if self.unavailable:
            return f"unavailable: all {self.unavailable} rows of {metric} are null"
        return f"unavailable: no row of {metric} was recorded"

    def per(self, moment: Integers, reduce: np.ufunc) -> tuple[Integers, Integers, Floats]:
        """(run, moment, value), reduced over the ranks; a step repeated by a restarted agent counts once."""
        last = last_of_each(self.run, moment, self.rank)  # the latest attempt of each rank
        run, when, value = self.run[last], moment[last], self.value[last]
        if not len(value):
            return run, when, value
        new = np.flatnonzero(np.r_[True, (np.diff(run) != 0) | (np.diff(when) != 0)])
        return run[new], when[new], reduce.reduceat(value, new)


def over_steps(run: Integers, statistic: OverTime, unit: str) -> Estimate:
    """The statistic of all steps, with its interval; of several runs, the median over them.

    run: (measured,) which run each step belongs to, ascending; unit: what is counted ("steps").

    Consecutive steps resemble each other: whatever slows one (a neighbour on the machine, a clock that
    drops, a page cache) also slows the next. An interval that takes them for independent is too narrow; with
    a correlation of 0.6 between neighbours a nominal 95 % interval holds the truth only 78 times in 100. So
    the dependence is measured, and the steps count as the independent ones that they are worth; where they
    are worth fewer than 30, which is too little to measure it, there is no interval, and a criterion is
    decided only by a margin. What never happened during the run no step can show, nor what differs from
    process to process: with several runs, one run counts once (Hoefler and Belli, SC'15, doi
    10.1145/2807591.2807644, rules 5 and 7).
    """
    measured = len(statistic)
    if len(np.unique(run)) > 1:
        return over_runs([statistic.of(slice(a, b)) for a, b in pairwise(edges_of(run))])
    value = statistic.of(slice(None))
    if math.isnan(value):
        return Estimate(value, n=measured, sample_unit=unit, reason="not a number")
    interval, samples, reason = statistic.interval(unit)
    low, high = interval or (None, None)
    worth = unit if samples == measured else f"effective of {measured:,} {unit}"
    steps = statistic.steps(unit) if measured >= statistic.needed else None
    return Estimate(value, low, high, samples, worth, reason=reason, steps=steps)


def over_runs(values: list[float]) -> Estimate:
    """The median over fresh runs and its exact interval; without one when they are fewer than six."""
    return one_by_one(values, "run")


def one_by_one(values: Sequence[float], what: str) -> Estimate:
    """The median of what lies so far apart that each counts, with its exact interval; `what` is one of it."""
    if len(values) >= FEWEST_RUNS:
        return _with_interval(values, f"{what}s")
    missing = FEWEST_RUNS - len(values)
    found = f"1 {what} is" if len(values) == 1 else f"{len(values)} {what}s are"
    reason = f"no interval: {found} too few, it needs {FEWEST_RUNS}: make {missing} more"
    return Estimate(float(np.median(values)), n=len(values), sample_unit=f"{what}s", reason=reason)


def of_each_run(run: Integers, values: Floats, fact: Callable[[Floats], np.floating]) -> Estimate:
    """An exact fact when there is one run, the median over the runs when there are several.

    run, values: (rows,), the rows of a run next to each other; fact: one value from one run's rows.
    """
    edges = edges_of(run)
    facts = [float(fact(values[a:b])) for a, b in pairwise(edges)]
    if len(facts) == 1:
        return Estimate(facts[0], n=1, sample_unit="run", exact=True)
    return over_runs(facts)


def side_by_side(first: Rows, second: Rows) -> tuple[Integers, Floats, Floats]:
    """(run, first, second) for every step that has both: the sum and the largest over the ranks."""
    run_a, step_a, total = first.per(first.step, np.add)
    run_b, step_b, largest = second.per(second.step, np.maximum)
    steps = max(step_a.max(initial=0), step_b.max(initial=0)) + 2  # steps count from −1 ("none")
    _, a, b = np.intersect1d(run_a * steps + step_a, run_b * steps + step_b, True, return_indices=True)
    return run_a[a], total[a], largest[b]


def last_of_each(*keys: Integers) -> Integers:
    """The positions of the last row of each distinct combination of keys, ordered by the keys."""
    order = np.lexsort(keys[::-1])  # stable: what was written later stays later
    ended = np.zeros(len(order), dtype=bool)
    ended[-1:] = True
    for key in keys:
        ended[:-1] |= np.diff(key[order]) != 0
    return order[ended]


def _with_interval(values: Sequence[float], sample_unit: str) -> Estimate:
    data = np.asarray(values, dtype=np.float64)
    if np.isnan(data).any():
        return Estimate(float("nan"), n=len(data), sample_unit=sample_unit, reason="not a number")
    interval = median_interval(data)
    low, high = interval if interval is not None else (None, None)
    return Estimate(float(np.median(data)), low, high, len(data), sample_unit)


def edges_of(*keys: Integers) -> Integers:
    """The places where each run (or combination of keys) begins in columns ordered by them, and the end."""
    new = np.any([np.diff(key) != 0 for key in keys], axis=0)
    edges: Integers = np.r_[np.flatnonzero(np.r_[True, new]), len(keys[0])]
    return edges


def _numbered(column: pa.ChunkedArray, words: pa.Array) -> Integers:
    """A column of words as their places in `words`."""
    return _integers(pc.index_in(column.cast(pa.utf8()), value_set=words.cast(pa.utf8())))


def _integers(column: pa.ChunkedArray) -> Integers:
    numbers: Integers = column.cast(pa.int64()).fill_null(-1).to_numpy()
    return numbers
