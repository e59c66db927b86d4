"""Metrics of contenders that were measured side by side: ratios over pairs of fresh processes.

Rows of `samples` say in `scope` which contender they are about and in `rep` which pair they belong to. The
processes of one pair ran one after the other; what differs from process to process (where memory came to
lie, what else the machine did) is larger than what differs from step to step, so a process counts once
(Hoefler and Belli, SC'15, doi 10.1145/2807591.2807644; `median_log_ratio` says why in pairs).
"""

from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.metrics.criteria import Metric, RunTables
from d5ray.metrics.definitions import RecordTime, StepTime
from d5ray.metrics.estimates import FEWEST_BLOCKS
from d5ray.metrics.statistics import Estimate, median_interval, median_log_ratio

ByPair = dict[int, float]  # from the pair to a value of the processes that one contender had in it


@final
@dataclass(frozen=True)
class StepTimeOf(Metric):
    """The time of a contender's step: the slowest rank's, the median within processes, then over them."""

    contender: str

    name = "step_time"
    unit = "s"
    direction = "min"
    kind = "cost"
    aggregation = "largest over ranks, median over steps, median over fresh processes"
    description = "one training step of this contender"

    def estimate(self, run: RunTables) -> Estimate:
        return _over_processes(step_times(run, self.contender), self.contender)


@final
@dataclass(frozen=True)
class StepTimeRatio(Metric):
    """How many times a step of `ours` takes as long as one of `base`, measured in pairs."""

    ours: str
    base: str

    name = "step_time_ratio"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "median over steps in each process, median of the log-ratio over pairs of processes"
    description = "a step's time over that of the base, which does the same work"

    def estimate(self, run: RunTables) -> Estimate:
        above, below = step_times(run, self.ours), step_times(run, self.base)
        pairs = sorted(above.keys() & below.keys())
        if not pairs:
            return Estimate(None, reason=f"unavailable: no pair of {self.ours} and {self.base} was measured")
        ratio = median_log_ratio([above[pair] for pair in pairs], [below[pair] for pair in pairs])
        if ratio.interval is None:
            return Estimate(ratio.value, n=ratio.n, sample_unit="pairs", reason=_too_few(ratio.n, "pairs"))
        return Estimate(ratio.value, *ratio.interval, ratio.n, "pairs of fresh processes")


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
        return _over_processes(share, self.contender)


def contenders(run: RunTables) -> list[str]:
    """Who was measured side by side, in order of appearance; empty for a run of agents."""
    samples = run["samples"]
    scopes = samples.filter(pc.equal(samples["metric"], StepTime.name))["scope"].unique().to_pylist()
    return [scope for scope in scopes if scope != "agent"]


def step_times(run: RunTables, contender: str) -> ByPair:
    """The median step time of each process, or group of processes, of a contender."""
    rows = _rows(run, StepTime.name, contender)
    slowest = rows.group_by(["rep", "step"]).aggregate([("value", "max")])
    pairs, seconds = slowest["rep"].to_numpy(), slowest["value_max"].to_numpy()
    return {int(pair): float(np.median(seconds[pairs == pair])) for pair in np.unique(pairs)}


def _sums(run: RunTables, metric: str, contender: str) -> dict[tuple[int, int], float]:
    """The sum over the measured steps, by (pair, rank)."""
    sums = _rows(run, metric, contender).group_by(["rep", "rank"]).aggregate([("value", "sum")])
    columns = (sums[name].to_pylist() for name in ("rep", "rank", "value_sum"))
    return {(pair, rank): value for pair, rank, value in zip(*columns, strict=True)}


def _rows(run: RunTables, metric: str, contender: str) -> pa.Table:
    samples = run["samples"]
    for column, wanted in (("metric", metric), ("scope", contender), ("phase", "train")):
        samples = samples.filter(pc.equal(samples[column], wanted))
    return samples.filter(pc.is_valid(samples["value"]))


def _over_processes(by_pair: ByPair, contender: str) -> Estimate:
    values: npt.NDArray[np.float64] = np.array(list(by_pair.values()))
    if not len(values):
        return Estimate(None, reason=f"unavailable: {contender} was not measured")
    interval = median_interval(values)
    if interval is None:
        reason = _too_few(len(values), "processes")
        return Estimate(float(np.median(values)), n=len(values), sample_unit="processes", reason=reason)
    return Estimate(float(np.median(values)), *interval, len(values), "fresh processes")


def _too_few(found: int, unit: str) -> str:
    return (
        f"no interval: {found} {unit} are too few, it needs {FEWEST_BLOCKS}: "
        f"make {FEWEST_BLOCKS - found} more"
    )
