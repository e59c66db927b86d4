"""How often intervals of one run hold the truth: `python -m tests.metrics.statistics.coverage` simulates it

Step times that are independent or follow one another (the logarithm is x_t = ρ x_(t−1) + ε_t), with heavy
tails, of a machine with two speeds, and with a slow step at every k-th, such as a checkpoint.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt
from scipy import special, stats
from scipy.signal import lfilter

from d5ray.metrics.statistics.time_series import OverTime, Quantile, Quotient

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator


def autoregressive(rng: Generator, tries: int, n: int, rho: float) -> Floats:
    """(tries, n) of x_t = ρ x_(t−1) + ε_t, stationary, median 0, variance 1."""
    noise = rng.normal(0, math.sqrt(1 - rho**2), (tries, n))
    noise[:, 0] = rng.normal(size=tries)
    found: Floats = lfilter([1.0], [1.0, -rho], noise, axis=1)
    return found


class Steps(NamedTuple):
    """How step times are drawn, (tries, n), and the inverse of their distribution function."""

    draw: Callable[[Generator, int, int], Floats]
    quantile: Callable[[Floats], Floats]


def log_normal(rho: float, sigma: float = 0.5) -> Steps:
    return Steps(
        lambda rng, tries, n: np.exp(sigma * autoregressive(rng, tries, n, rho)),
        lambda q: np.exp(sigma * special.ndtri(q)),
    )


def heavy_tailed(rho: float) -> Steps:
    """1 and a tenth of the absolute value of Student's t with three degrees of freedom."""

    def inverse(q: Floats) -> Floats:
        found: Floats = 1 + 0.1 * stats.t(3).ppf((1 + q) / 2)
        return found

    return Steps(lambda rng, tries, n: inverse(special.ndtr(autoregressive(rng, tries, n, rho))), inverse)


def two_speeds(fast: float, slow: float) -> Steps:
    """1 or 1.3 with 5 % of noise; that many steps long it is fast, and slow, in the mean."""

    def draw(rng: Generator, tries: int, n: int) -> Floats:
        is_slow = np.empty((tries, n), bool)
        now = rng.random(tries) < slow / (fast + slow)
        switch = rng.random((n, tries))
        for step in range(n):
            is_slow[:, step] = now
            now = now ^ (switch[step] < np.where(now, 1 / slow, 1 / fast))
        found: Floats = np.where(is_slow, 1.3, 1.0) + rng.normal(0, 0.05, (tries, n))
        return found

    return Steps(draw, _inverse(lambda x: [(fast, x - 1.0), (slow, x - 1.3)], fast + slow))


def spikes(every: int) -> Steps:
    """1 with 5 % of noise, and 6 at every k-th step."""

    def draw(rng: Generator, tries: int, n: int) -> Floats:
        first = rng.integers(every, size=(tries, 1))
        spiked = (np.arange(n) + first) % every == 0
        found: Floats = 1 + 5 * spiked + rng.normal(0, 0.05, (tries, n))
        return found

    return Steps(draw, _inverse(lambda x: [(every - 1, x - 1.0), (1, x - 6.0)], every))


def _inverse(
    parts: Callable[[Floats], list[tuple[float, Floats]]], total: float
) -> Callable[[Floats], Floats]:
    """The inverse of a mixture's distribution: (weight, distance from the middle), with noise of 0.05."""
    grid = np.linspace(0.5, 7, 1_300_001)
    below = sum(weight * special.ndtr(away / 0.05) for weight, away in parts(grid)) / total

    def inverse(q: Floats) -> Floats:
        found: Floats = np.interp(q, below, grid)
        return found

    return inverse


MACHINES: dict[str, Steps] = {
    **{f"ρ = {rho}": log_normal(rho) for rho in (0.0, 0.3, 0.5, 0.7, 0.9, 0.95)},
    "log-normal, σ = 1, ρ = 0.5": log_normal(0.5, sigma=1.0),
    "heavy tails": heavy_tailed(0.0),
    "heavy tails, ρ = 0.9": heavy_tailed(0.9),
    "two speeds, 30 and 10 steps": two_speeds(30, 10),
    "two speeds, 100 and 100 steps": two_speeds(100, 100),
    "two speeds, 400 and 100 steps": two_speeds(400, 100),
    "a spike every 10 steps": spikes(10),
    "a spike every 100 steps": spikes(100),
}


def rate(seconds: Floats) -> Quotient:
    """Steps a second."""
    return Quotient(np.ones(len(seconds)), seconds)


STATISTICS: dict[str, Callable[[Floats], OverTime]] = {
    "median": Quantile,
    "p90": lambda seconds: Quantile(seconds, 0.9),
    "p99": lambda seconds: Quantile(seconds, 0.99),
    "rate": rate,
}


def truth(steps: Steps, statistic: str) -> float:
    """What the statistic is of all steps that there could be."""
    if statistic == "rate":
        shares = (np.arange(200_000) + 0.5) / 200_000
        return 1 / float(steps.quantile(shares).mean())
    q = {"median": 0.5, "p90": 0.9, "p99": 0.99}[statistic]
    return float(steps.quantile(np.array([q]))[0])


@final
@dataclass(frozen=True)
class Coverage:
    """given: the share of runs that have an interval; right: the share of these that hold the truth."""

    given: float
    right: float

    @property
    def wrong(self) -> float:
        """The share of all runs whose interval does not hold the truth."""
        return self.given * (1 - self.right) if self.given else 0.0


def coverage(machine: str, statistic: str, n: int, tries: int, seed: int = 1) -> Coverage:
    """Of that many runs of n steps."""
    steps = MACHINES[machine]
    true = truth(steps, statistic)
    found = [
        STATISTICS[statistic](seconds).interval()[0]
        for seconds in steps.draw(np.random.default_rng(seed), tries, n)
    ]
    given = [interval for interval in found if interval is not None]
    right = sum(interval.low <= true <= interval.high for interval in given)
    return Coverage(len(given) / tries, right / len(given) if given else math.nan)


def main() -> None:
    """For each machine, statistic and length: the share of intervals that are right, and of runs with one."""
    show = sys.stdout.write
    lengths = (60, 200, 1000, 10_000)
    show(f"{'coverage (share of runs with an interval)':44}" + "".join(f"{n:>15,}" for n in lengths) + "\n")
    for machine in MACHINES:
        for statistic in STATISTICS:
            found = [coverage(machine, statistic, n, 200 if n > 1000 else 600) for n in lengths]
            cells = "".join(f"{each.right:>8.3f} ({each.given:.2f})" for each in found)
            show(f"{machine:36}{statistic:8}{cells}\n")


if __name__ == "__main__":
    main()
