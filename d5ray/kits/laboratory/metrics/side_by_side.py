"""Metrics of contenders that were measured side by side: ratios over pairs of fresh processes.

Rows of `samples` say in `scope` which contender they are about and in `rep` which pair they belong to. The
processes of one pair ran one after the other; what differs from process to process (where memory came to
lie, what else the machine did) is larger than what differs from step to step, so a process counts once
(Hoefler and Belli, SC'15, doi 10.1145/2807591.2807644; `median_log_ratio` says why in pairs).
"""

from abc import ABC
from dataclasses import dataclass, fields
from typing import ClassVar, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.metrics.definitions.catalogue import RecordTime, StepTime
from d5ray.metrics.judge.criteria import Direction, Kind, Metric, RunTables
from d5ray.metrics.statistics.estimates import FEWEST_RUNS
from d5ray.metrics.statistics.intervals import Estimate, median_interval, median_log_ratio

ByPair = dict[int, float]  # from the pair to a value of the processes that one contender had in it
UNAVAILABLE = "unavailable"  # how the status of a row begins whose contender cannot be measured here
FAILED = "failed:"  # how the reason in a status begins of a round in which a peer failed
_FAILS = f"{UNAVAILABLE}: {FAILED} "

OF_TIMES = "largest over ranks, median over steps, median over fresh processes"
OF_RATIOS = "median over steps in each process, median of the log-ratio over pairs of processes"


@dataclass(frozen=True)
class OfAContender(Metric, ABC):
    """A time, or the like, of one contender: the median over its fresh processes.

    A field that a subclass adds is what the time was measured at, such as a size. recorded: the metric of its
    rows, where that has another name.
    """

    contender: str

    recorded: ClassVar[str] = ""
    unit = "s"
    direction: ClassVar[Direction] = "min"
    kind: ClassVar[Kind] = "cost"
    aggregation = OF_TIMES

    def estimate(self, run: RunTables) -> Estimate:
        return time_of(run, self.recorded or self.name, self.contender, measured_at(self, 1))


@dataclass(frozen=True)
class RatioOfPairs(Metric, ABC):
    """The time of `ours` over that of `base`, measured in pairs of fresh processes.

    A field that a subclass adds is what both were measured at. recorded: the metric of their rows.
    """

    ours: str
    base: str

    recorded: ClassVar[str]
    unit = "1"
    direction: ClassVar[Direction] = "min"
    kind = "ratio"
    aggregation = OF_RATIOS

    def estimate(self, run: RunTables) -> Estimate:
        return time_ratio(run, self.recorded, self.ours, self.base, measured_at(self, 2))


@dataclass(frozen=True)
class SpeedupOfPairs(RatioOfPairs, ABC):
    """The time of `base` over that of `ours`, measured in pairs of fresh processes."""

    direction = "max"

    @final
    def estimate(self, run: RunTables) -> Estimate:
        return time_ratio(run, self.recorded, self.base, self.ours, measured_at(self, 2))


@dataclass(frozen=True)
class RatioOfSides(Metric, ABC):
    """The time of one side of a contender over that of another, in turn in each of its processes.

    A field that a subclass adds is what both were measured at. recorded: the metric of their rows, whose
    scope ends in the side. sides: ours and the base.
    """

    contender: str

    recorded: ClassVar[str]
    sides: ClassVar[tuple[str, str]]
    unit = "1"
    direction: ClassVar[Direction] = "min"
    kind = "ratio"

    def estimate(self, run: RunTables) -> Estimate:
        ours, base = (scope_of(scope_of(self.contender, measured_at(self, 1)), side) for side in self.sides)
        return time_ratio(run, self.recorded, ours, base)


@final
class StepTimeOf(OfAContender, name="step_time"):
    """One training step of this contender."""


@final
class StepTimeRatio(RatioOfPairs, name="step_time_ratio", recorded=StepTime.name):
    """A step's time over that of the base, which does the same work."""


@final
@dataclass(frozen=True)
class RecordingShare(Metric):
    """The share of the time of a contender's steps that recording takes, sending the rows included.

    Sums, not medians: most steps only append a row, and one in some hundred makes and sends a batch.
    """

    contender: str

    name = "recording_share"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "sum over sum of all steps, largest over ranks, median over fresh processes"
    description = "the share of a step that recording metrics takes"

    def estimate(self, run: RunTables) -> Estimate:
        recording = _sums(run, RecordTime.name, self.contender)
        whole = _sums(run, StepTime.name, self.contender)
        share: ByPair = {}
        for (pair, rank), seconds in recording.items():
            if whole.get((pair, rank)):
                share[pair] = max(share.get(pair, 0.0), seconds / whole[pair, rank])
        return over_processes(run, share, self.contender)


def measured_at(metric: Metric, whom: int) -> str:
    """The values of a metric's fields after those that say whom it is about."""
    return " ".join(str(getattr(metric, each.name)) for each in fields(metric)[whom:])


def scope_of(contender: str, at: str = "") -> str:
    """The scope of the rows about a contender, or about what it did at one size.

    >>> scope_of("socket[2]", "1 MB")
    'socket[2] 1 MB'
    """
    return f"{contender} {at}".rstrip()


def time_of(run: RunTables, metric: str, contender: str, at: str = "") -> Estimate:
    """The median over fresh processes of a time that every rank wrote at every step."""
    return over_processes(run, times_by_pair(run, metric, scope_of(contender, at)), contender)


def time_ratio(run: RunTables, metric: str, ours: str, base: str, at: str = "") -> Estimate:
    """ours over base, in pairs; unavailable with the reason where one of them could not be measured."""
    above, below = (times_by_pair(run, metric, scope_of(contender, at)) for contender in (ours, base))
    return ratio_of_pairs(run, above, below, ours, base)


def ratio_of_pairs(run: RunTables, above: ByPair, below: ByPair, ours: str, base: str) -> Estimate:
    """The ratio of ours to the base, over those pairs in which both were measured."""
    pairs = sorted(above.keys() & below.keys())
    if why := _failures(run, ours) or _failures(run, base):
        return Estimate(None, reason=why)
    if not pairs:
        absent = [name for name, measured in ((ours, above), (base, below)) if not measured]
        nothing = f"{UNAVAILABLE}: no pair of {ours} and {base} was measured"
        return Estimate(None, reason=why_not_measured(run, absent[0]) if absent else nothing)
    ratio = median_log_ratio([above[pair] for pair in pairs], [below[pair] for pair in pairs])
    if ratio.interval is None:
        return Estimate(ratio.value, n=ratio.n, sample_unit="pairs", reason=too_few(ratio.n, "pairs"))
    return Estimate(ratio.value, *ratio.interval, ratio.n, "pairs of fresh processes")


def contenders(run: RunTables, metric: str = StepTime.name) -> list[str]:
    """The baselines whose times of this metric were measured, in order of appearance; none for agents.

    What was measured at several sizes appears once for each of them, as its rows do; who failed in a round
    does not.
    """
    samples = run["samples"]
    measured = samples.filter(pc.and_(pc.equal(samples["metric"], metric), pc.is_valid(samples["value"])))
    failed = set(_failed(run)["scope"].unique().to_pylist())
    scopes = measured["scope"].unique().to_pylist()
    return [each for each in scopes if each != "agent" and not any(_is_of(each, name) for name in failed)]


def times_by_pair(run: RunTables, metric: str, scope: str) -> ByPair:
    """The median time of each process, or group of processes: that of a step is its slowest rank's."""
    rows = rows_of(run, metric, scope)
    slowest = rows.group_by(["rep", "step"]).aggregate([("value", "max")])
    pairs, seconds = slowest["rep"].to_numpy(), slowest["value_max"].to_numpy()
    return {int(pair): float(np.median(seconds[pairs == pair])) for pair in np.unique(pairs)}


def rows_of(run: RunTables, metric: str, scope: str) -> pa.Table:
    """The measured values of a metric about this scope; none of the warm-up."""
    samples = run["samples"]
    for column, wanted in (("metric", metric), ("scope", scope)):
        samples = samples.filter(pc.equal(samples[column], wanted))
    return samples.filter(pc.and_(pc.is_valid(samples["value"]), pc.not_equal(samples["phase"], "warmup")))


def over_processes(run: RunTables, by_pair: ByPair, contender: str) -> Estimate:
    """The median over fresh processes of what a contender came to in each of them."""
    values: npt.NDArray[np.float64] = np.array(list(by_pair.values()))
    if why := _failures(run, contender):
        return Estimate(None, reason=why)
    if not len(values):
        return Estimate(None, reason=why_not_measured(run, contender))
    interval = median_interval(values)
    if interval is None:
        reason = too_few(len(values), "processes")
        return Estimate(float(np.median(values)), n=len(values), sample_unit="processes", reason=reason)
    return Estimate(float(np.median(values)), *interval, len(values), "fresh processes")


def why_not_measured(run: RunTables, contender: str) -> str:
    """The reason why there is nothing of this contender."""
    known = _failures(run, contender) or _reason(run, contender)
    return known or f"{UNAVAILABLE}: {contender} was not measured"


def _failures(run: RunTables, contender: str) -> str:
    """How often a contender failed, and why first; empty if it never did.

    What the other rounds came to says nothing then: those that fail might have taken longest.
    """
    failed = _failed(run)
    failed = failed.filter(pc.equal(failed["scope"].cast(pa.utf8()), contender)).sort_by("rep")
    if not failed.num_rows:
        return ""
    samples = run["samples"]
    own = [scope for scope in samples["scope"].unique().to_pylist() if _is_of(scope, contender)]
    measured = samples.filter(pc.is_in(samples["scope"].cast(pa.utf8()), value_set=pa.array(own)))
    often = f"failed in {failed.num_rows} of {len(measured['rep'].unique())} rounds"
    return f"{UNAVAILABLE}: {contender} {often}: {failed['status'][0].as_py().removeprefix(_FAILS)}"


def _failed(run: RunTables) -> pa.Table:
    """The rows of rounds in which a contender failed."""
    samples = run["samples"]
    return samples.filter(pc.starts_with(samples["status"].cast(pa.utf8()), _FAILS))


def _is_of(scope: str, contender: str) -> bool:
    """True for the scope of a contender, or of what it did at one size."""
    return scope == contender or scope.startswith(f"{contender} ")


def _reason(run: RunTables, contender: str) -> str:
    """The reason that the run gives for not measuring a baseline; empty if it gives none."""
    samples = run["samples"]
    missing = samples.filter(
        pc.and_(pc.equal(samples["scope"], contender), pc.is_null(samples["value"], nan_is_null=False))
    )
    statuses = missing["status"].unique().to_pylist()
    return next((status for status in statuses if status.startswith(UNAVAILABLE)), "")


def _sums(run: RunTables, metric: str, contender: str) -> dict[tuple[int, int], float]:
    """The sum over the measured steps, by (pair, rank)."""
    sums = rows_of(run, metric, contender).group_by(["rep", "rank"]).aggregate([("value", "sum")])
    columns = (sums[name].to_pylist() for name in ("rep", "rank", "value_sum"))
    return {(pair, rank): value for pair, rank, value in zip(*columns, strict=True)}


def too_few(found: int, unit: str) -> str:
    """Why there is no interval of so few."""
    return f"no interval: {found} {unit} are too few, it needs {FEWEST_RUNS}: make {FEWEST_RUNS - found} more"
