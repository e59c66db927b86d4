"""Strong and weak scaling efficiency, of groups of runs and of contenders side by side"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, final

import numpy as np
import pyarrow.compute as pc

from d5ray.checks import check_count
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.metrics.side_by_side import RatioOfPairs, time_ratio
from d5ray.metrics.definitions.catalogue import SamplesSeen, StepTime
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.estimates import FEWEST_RUNS
from d5ray.metrics.statistics.intervals import Estimate, median_log_ratio


@final
class RunSteps(NamedTuple):
    """A run's steps: the median time of one, s, and how many samples all agents together have in one."""

    seconds: float
    samples: float


SAME = 0.01  # relative: the samples of a step may differ by this and still be the same work


@dataclass(frozen=True)
class Efficiency(Metric, ABC):
    """An efficiency of runs with `agents` agents over runs with `base` of them; both are in the tables.

    T is the median time of a step. Runs are paired in the order in which they started; the interval is that
    of the median of the pairs' log-ratios, and needs six pairs. The base's time is in the reason
    (Hoefler and Belli, SC'15, doi 10.1145/2807591.2807644, rule 1: state the base of a speed-up).
    """

    agents: int
    base: int = 1

    unit = "1"
    direction = "max"
    kind = "ratio"
    aggregation = "median over steps in each run, median of the log-ratio over pairs of runs"

    def __post_init__(self) -> None:
        for name in ("agents", "base"):
            check_count(name, getattr(self, name), 1)
        if self.agents <= self.base:
            raise ConfigurationError(
                f"agents is {self.agents}, base {self.base}: efficiency is that of more agents over fewer"
            )

    def reads(self) -> tuple[str, ...]:
        return (StepTime.name, SamplesSeen.name)

    @property
    @abstractmethod
    def share(self) -> float:
        """The factor that T_base/T_N is multiplied with."""

    @abstractmethod
    def same_work(self, samples_base: float, samples: float) -> str:
        """The reason why steps of these numbers of samples cannot be compared; empty if they can."""

    def estimate(self, run: RunTables) -> Estimate:
        return self.between(*(_steps_of(run, agents) for agents in (self.base, self.agents)))

    @final
    def between(self, few: Sequence[RunSteps], many: Sequence[RunSteps]) -> Estimate:
        """The efficiency of runs with more agents against runs with `base`, both in order of their start."""
        for agents, side in zip((self.base, self.agents), (few, many), strict=True):
            if not side:
                return Estimate(None, reason=f"unavailable: there is no run with {agents} agents")
        below, above = (np.array([seconds for seconds, _ in side]) for side in (few, many))
        wrong = self.same_work(*(float(np.median([samples for _, samples in side])) for side in (few, many)))
        if wrong:
            return Estimate(None, reason=f"unavailable: {wrong}")
        pairs = min(len(below), len(above))
        ratio = median_log_ratio(below[:pairs], above[:pairs])
        base = f"base: {self.base} agent{'s' * (self.base > 1)}, a step of {np.median(below):.4g} s"
        if ratio.interval is None:
            lacking = f"no interval: {pairs} pairs of runs are too few, it needs {FEWEST_RUNS}"
            return Estimate(
                ratio.value * self.share, n=pairs, sample_unit="pairs of runs", reason=f"{lacking}; {base}"
            )
        found = Estimate(ratio.value, *ratio.interval, pairs, "pairs of runs", reason=base)
        return multiplied(found, self.share)


@final
@dataclass(frozen=True)
class StrongEfficiency(Efficiency):
    """base · T_base / (N · T_N): the same work, all agents' samples of a step together, on more agents."""

    name = "strong_efficiency"
    description = "the share of the ideal speed-up that more agents reach on the same work"

    @property
    def share(self) -> float:
        return self.base / self.agents

    def same_work(self, samples_base: float, samples: float) -> str:
        if math.isclose(samples_base, samples, rel_tol=SAME):
            return ""
        return (
            f"a step has {samples_base:g} samples with {self.base} agents, {samples:g} with {self.agents}: "
            "strong scaling is of the same work, so divide batch_size; or ask for WeakEfficiency"
        )


@final
@dataclass(frozen=True)
class WeakEfficiency(Efficiency):
    """T_base / T_N: work that grows with the agents, each agent's own samples of a step being the same."""

    name = "weak_efficiency"
    description = "how nearly a step takes as long with more agents that each have as much to do"

    @property
    def share(self) -> float:
        return 1.0

    def same_work(self, samples_base: float, samples: float) -> str:
        if math.isclose(samples_base / self.base, samples / self.agents, rel_tol=SAME):
            return ""
        return (
            f"an agent's step has {samples_base / self.base:g} samples with {self.base} agents and "
            f"{samples / self.agents:g} with {self.agents}: weak scaling keeps batch_size; or ask for "
            "StrongEfficiency"
        )


@dataclass(frozen=True)
class EfficiencyOf(RatioOfPairs, ABC):
    """An efficiency of a contender with `times` as many processes as `base`, in pairs of fresh processes."""

    times: int

    direction = "max"
    same_work: ClassVar[bool]  # of a step of both, however many processes there are

    def __post_init__(self) -> None:
        check_count("times", self.times, 2)

    def reads(self) -> tuple[str, ...]:
        return (StepTime.name,)

    def estimate(self, run: RunTables) -> Estimate:
        found = time_ratio(run, StepTime.name, self.base, self.ours)
        return multiplied(found, 1 / self.times if self.same_work else 1.0)


@final
@dataclass(frozen=True)
class StrongEfficiencyOf(EfficiencyOf):
    """T_base / (N · T_N), N being `times`: for contenders whose step is the same work."""

    name = "strong_efficiency"
    description = StrongEfficiency.description
    same_work = True


@final
@dataclass(frozen=True)
class WeakEfficiencyOf(EfficiencyOf):
    """T_base / T_N: for contenders each of whose processes does as much."""

    name = "weak_efficiency"
    description = WeakEfficiency.description
    same_work = False


def multiplied(found: Estimate, factor: float) -> Estimate:
    """The estimate of so many times the quantity, its interval too."""
    value, low, high = (
        None if each is None else each * factor for each in (found.value, found.low, found.high)
    )
    return replace(found, value=value, low=low, high=high)


def _steps_of(run: RunTables, agents: int) -> list[RunSteps]:
    """The steps of each run with this many agents, in the order in which they started."""
    rows = run["runs"].filter(pc.equal(run["runs"]["agents"], agents)).sort_by("started")
    found = []
    for name in rows["run_id"].to_pylist():
        own = run["samples"].filter(pc.equal(run["samples"]["run_id"], name))
        if (steps := steps_of({"samples": own})) is not None:
            found.append(steps)
    return found


def steps_of(run: RunTables) -> RunSteps | None:
    """The steps of one run; None if they were not timed, or had no samples."""
    seconds = StepTime().estimate(run).value
    steps = run["samples"].filter(pc.equal(run["samples"]["metric"], SamplesSeen.name))
    if seconds is None or not steps.num_rows:
        return None
    by_step = steps.group_by("step").aggregate([("value", "sum")])["value_sum"].to_numpy()
    return RunSteps(seconds, float(np.median(by_step)))
