"""Plan of which problem is measured when, and which is not: a budget for a spread of them, none too long"""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, final

from d5ray.actors.executors.call_timer import FEWEST, WARMUPS
from d5ray.metrics.statistics.intervals import fewest_samples
from d5ray.ops.counting.measurable import Measurable, bound_seconds

MEMORY_SHARE: Final = 0.5  # of what is free, for one problem
PROBLEM_SHARE: Final = 0.25  # of a round, at most, for one problem under all frameworks
LEAST_SECONDS, MOST_SECONDS = 0.02, 0.5  # for the values of a problem under one framework in one process
STARTING_SHARE: Final = 0.7  # of a budget, at most, that starting all processes that are wanted may take
TOLD_SHARE: Final = 0.5  # of a budget; where starting took more, that is said
INTERVAL_PROCESSES: Final = fewest_samples(0.5)  # for one of the median
FEWER_SHARE: Final = 1 / 3  # where that is not enough for all of them
MADE_BYTES_PER_SECOND: Final = 1e9  # of random inputs
FIRST_SLOWNESS: Final = 3.0  # over the roofline, of a problem of which nothing is known
LARGEST_GUESS: Final = 20.0  # where only problems were measured whose time may be the call's alone


@final
@dataclass
class MeasurementPlan:
    """The known times of the problems, and which are left out under which framework, and why."""

    problems: Sequence[Measurable]
    frameworks: tuple[str, ...]
    memory_bytes: float
    seed: int
    reached: set[tuple[str, str]] = field(default_factory=set)  # framework and problem, in the first round
    skipped: dict[tuple[str, str], str] = field(default_factory=dict)
    flops_per_second: float = 0.0
    bytes_per_second: float = 0.0
    _calls: dict[tuple[str, str], list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def order(self, turn: int) -> list[Measurable]:
        """The problems of a round: at random, the groups in turn; in the first the least of each in front.

        From the second round on only those that the first reached.
        """
        draw = random.Random(f"{self.seed} {turn}")
        groups: dict[str, list[Measurable]] = {}
        for problem in self.problems:
            if turn == 0 or any((name, problem.name) in self.reached for name in self.frameworks):
                groups.setdefault(problem.group, []).append(problem)
        for members in groups.values():
            draw.shuffle(members)
            if turn == 0:
                least = min(members, key=lambda each: each.flops)
                members.remove(least)
                members.insert(0, least)
        rows = zip_longest(*groups.values())
        return [problem for row in rows for problem in row if problem is not None]

    def interleaved(self, turn: int) -> tuple[str, ...]:
        """The frameworks at one problem: forwards, in the next round backwards."""
        return self.frameworks if turn % 2 == 0 else self.frameworks[::-1]

    def slice_seconds(self, round_seconds: float) -> float:
        """The seconds for the values of one problem, so that many problems have their share."""
        even = round_seconds / max(1, len(self.problems) * len(self.frameworks))
        return min(MOST_SECONDS, max(LEAST_SECONDS, even))

    def most_seconds(self, round_seconds: float) -> float:
        """The seconds that one problem may take under one framework: of few problems an even share."""
        share = max(PROBLEM_SHARE, 1 / max(1, len(self.problems)))
        return share * round_seconds / len(self.frameworks)

    def why_not(self, framework: str, problem: Measurable, most_seconds: float) -> str:
        """The reason not to measure a problem; empty if nothing is known against it."""
        if reason := self.skipped.get((framework, problem.name), ""):
            return reason
        if problem.needed_bytes > self.memory_bytes:
            return (
                f"memory: it takes about {problem.needed_bytes / 1e9:.3g} GB, and of what is free "
                f"{self.memory_bytes / 1e9:.3g} GB may be taken"
            )
        seconds, calls = self.predicted(framework, problem), WARMUPS + FEWEST
        making = problem.input_bytes / MADE_BYTES_PER_SECOND
        if making + calls * seconds > most_seconds:
            return (
                f"time: about {making:.2g} s for its inputs and {seconds:.2g} s for each of {calls} calls, "
                f"and the budget has {most_seconds:.2g} s"
            )
        return ""

    def predicted(self, framework: str, problem: Measurable) -> float:
        """Seconds of a call: of the largest smaller problem of the group, and what the roofline adds."""
        if not self.flops_per_second:
            return 0.0
        bound = bound_seconds(problem, self.flops_per_second, self.bytes_per_second)
        known = self._calls[framework, problem.group]
        if not known:
            return FIRST_SLOWNESS * bound
        slowness = max(1.0, min(seconds / least for least, seconds in known))
        if len(known) < FEWEST:
            slowness = min(slowness, LARGEST_GUESS)
        base, taken = max((pair for pair in known if pair[0] <= bound), default=(0.0, 0.0))
        return taken + slowness * (bound - base)

    def learn(self, framework: str, problem: Measurable, seconds: float) -> None:
        """Remember how long a call took; of no use without peaks."""
        if not self.flops_per_second:
            return
        bound = bound_seconds(problem, self.flops_per_second, self.bytes_per_second)
        self._calls[framework, problem.group].append((bound, seconds))


def fitting(wanted: int, budget_seconds: float, startup_seconds: float) -> int:
    """The number of fresh processes of each framework that a budget is good for; at least one.

    As many as are wanted, since an interval needs them, if some time is left for measuring; otherwise few, so
    that most of the time is.

    >>> fitting(6, 60.0, 5.0), fitting(6, 60.0, 10.0), fitting(6, 60.0, 50.0)
    (6, 2, 1)
    """
    if wanted * startup_seconds <= STARTING_SHARE * budget_seconds:
        return wanted
    return max(1, min(wanted, int(FEWER_SHARE * budget_seconds / startup_seconds)))


def what_was_short(
    rounds: int, wanted: int, frameworks: int, starting_seconds: float, budget_seconds: float
) -> str:
    """Why a budget measured less than was wanted; empty where it sufficed.

    rounds: of one fresh process of each framework; starting_seconds: that all of them took to be ready.

    >>> what_was_short(2, 6, 3, 20.0, 60.0)
    '2 of 6 processes fit into the budget; intervals need 6'
    >>> what_was_short(6, 6, 3, 37.2, 60.0)
    'starting 18 processes took 37 of 60 s: more --budget, or fewer --frameworks or --processes, measure more'
    """
    reasons = []
    if rounds < wanted:
        reasons.append(f"{rounds} of {wanted} processes fit into the budget")
        if rounds < INTERVAL_PROCESSES <= wanted:
            reasons.append(f"intervals need {INTERVAL_PROCESSES}")
    if starting_seconds > TOLD_SHARE * budget_seconds:
        reasons.append(
            f"starting {rounds * frameworks} processes took {starting_seconds:.0f} of {budget_seconds:g} s: "
            "more --budget, or fewer --frameworks or --processes, measure more"
        )
    return "; ".join(reasons)
