"""Simulation of verdicts of one run, wrong and open ones: `python -m tests.metrics.statistics.decisions`

The machines: the logarithm of a step's time is x_t = ρ x_(t−1) + ε_t; the speed is one of two, for a share of
the run's length or for many times that, so that most runs see one of them; bursts of slow steps. What is true
is what the statistic is of all steps that there could be, of both speeds, whatever the run saw.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt
from scipy import special

from d5ray.metrics.judge.criteria import Criterion, Metric, RunTables
from d5ray.metrics.statistics.estimates import over_steps
from d5ray.metrics.statistics.intervals import Estimate
from tests.metrics.statistics.coverage import STATISTICS, Generator, autoregressive

Floats = npt.NDArray[np.float64]

NORMAL: Floats = special.ndtri((np.arange(20_000) + 0.5) / 20_000)
NOISE = 0.05  # of a step, relative, on machines that switch
RATIOS = (1.001, 1.02, 1.05, 1.1, 1.2, 1.44, 1.7, 1.95, 2.2, 2.6, 2.95, 3.05, 3.5, 5.0, 10.0, 40.0)
TARGETS = (*(1 / ratio for ratio in RATIOS), *RATIOS)  # over the truth
FAR = 3.0


class Machine(NamedTuple):
    """How step times are drawn, (tries, n), and evenly spaced quantiles of all that there could be."""

    draw: Callable[[Generator, int, int], Floats]
    all: Floats


def wandering(rho: float, sigma: float) -> Machine:
    return Machine(
        lambda rng, tries, n: np.exp(sigma * autoregressive(rng, tries, n, rho)), np.exp(sigma * NORMAL)
    )


def switching(factor: float, share: float, length: Callable[[int], float]) -> Machine:
    """That many times slower for that share of all steps, for so many in the mean of a run of n."""

    def draw(rng: Generator, tries: int, n: int) -> Floats:
        slow = np.empty((n, tries), bool)
        now, switch, long = rng.random(tries) < share, rng.random((n, tries)), max(length(n), 1.0)
        for step in range(n):
            slow[step] = now
            now = now ^ (switch[step] < np.where(now, 1, share / (1 - share)) / long)
        found: Floats = np.where(slow.T, factor, 1.0) * (1 + NOISE * rng.normal(size=(tries, n)))
        return found

    slow = np.arange(len(NORMAL)) % 100 < 100 * share
    noise = 1 + NOISE * np.random.default_rng(0).permutation(NORMAL)
    return Machine(draw, np.where(slow, factor, 1.0) * noise)


def two_speeds(factor: float, share: float, moods: float) -> Machine:
    """moods: how long it stays slow, in lengths of the run."""
    return switching(factor, share, lambda n: moods * n)


def bursts(factor: float, share: float, steps: float) -> Machine:
    return switching(factor, share, lambda n: steps)


@final
@dataclass(frozen=True)
class Given(Metric):
    """A quantity whose estimate is given."""

    name, unit, direction, kind = "given", "s", "target", "cost"
    aggregation = description = ""
    found: Estimate

    def estimate(self, run: RunTables) -> Estimate:
        return self.found


@final
@dataclass(frozen=True)
class Decisions:
    """Shares of the runs, each at the target where it is largest.

    wrong: PASS or FAIL where the truth is otherwise; by_margin: so, by the steps and not by the interval;
    open_far: INCONCLUSIVE where the target is three times from what the run measured; open_true: three times
    from the truth.
    """

    wrong: float
    by_margin: float
    open_far: float
    open_true: float


def decisions(machine: Machine, statistic: str, n: int, tries: int, seed: int = 1) -> Decisions:
    """Of that many runs of n steps, by targets on both sides of the truth."""
    true = STATISTICS[statistic](machine.all).of(slice(None))
    one_run = np.zeros(n, np.int64)
    runs = [
        over_steps(one_run, STATISTICS[statistic](seconds), "steps")
        for seconds in machine.draw(np.random.default_rng(seed), tries, n)
    ]
    values = np.array([found.known for found in runs])
    wrong, by_margin, far, true_far = [], [], [], []
    for ratio in TARGETS:
        target = ratio * true
        verdicts = [Criterion(Given(found), "<=", target).judge({}) for found in runs]
        words = np.array([verdict.verdict for verdict in verdicts])
        errs, is_open = words == ("FAIL" if ratio >= 1 else "PASS"), words == "INCONCLUSIVE"
        wrong.append(errs.mean())
        by_margin.append((errs & np.array(["margin" in verdict.reason for verdict in verdicts])).mean())
        far.append((is_open & (np.abs(np.log(values / target)) >= math.log(FAR))).mean())
        true_far.append(is_open.mean() if abs(math.log(ratio)) >= math.log(FAR) else 0.0)
    return Decisions(*(float(max(shares)) for shares in (wrong, by_margin, far, true_far)))


SPREAD = math.log(1.45)  # one standard deviation is the largest change of speed that was seen
WANDERING = {f"ρ = {rho}": wandering(rho, SPREAD) for rho in (0.0, 0.5, 0.8, 0.9, 0.95)}
TWO_SPEEDS = {
    f"{factor:g} times slower, {share:.0%}, {moods:g} of a run": two_speeds(factor, share, moods)
    for factor in (1.45, 2)
    for share in (0.3, 0.5, 0.6)
    for moods in (0.05, 0.3, 1, 10)
}
BURSTS = {
    f"bursts of {steps}, {factor} times slower, {share:.0%}": bursts(factor, share, steps)
    for factor in (3, 10)
    for share in (0.02, 0.1, 0.2)
    for steps in (1, 5, 20)
}
MACHINES = WANDERING | {"ρ = 0.95, σ = 0.5": wandering(0.95, 0.5)} | TWO_SPEEDS | BURSTS


def main() -> None:
    """For each machine and length, of the median, the rate and the 90th percentile: the four shares, in %."""
    tries = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    sys.stdout.write("in %: wrong (of these by a margin), open by what was measured, by the truth\n")
    for statistic in ("median", "rate", "p90"):
        for name, machine in MACHINES.items():
            cells = ""
            for n in (30, 60, 200, 1000):
                if n > 30 or statistic != "p90":
                    d = decisions(machine, statistic, n, tries)
                    shares = [100 * share for share in (d.wrong, d.by_margin, d.open_far, d.open_true)]
                    cells += "  n={}: {:.1f} ({:.1f}) {:.1f} {:.1f}".format(n, *shares)
            sys.stdout.write(f"{statistic:7}{name:38}{cells}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
