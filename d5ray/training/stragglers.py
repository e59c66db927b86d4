"""Stragglers by plan: agents whose computations take longer, on real machines and simulated ones"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import MOST_RANKS, KnownKeywords, check_count, is_number, shown
from d5ray.errors import ConfigurationError

SLOWEST = 1e6  # times as long: a step of a millisecond takes a quarter of an hour


class StragglerModel(KnownKeywords, ABC):
    """Makes an agent's gradient computations take a multiple of the time."""

    agent: int | None  # a rank; None: every agent, each with draws of its own

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> float:
        """The multiple for one computation, at least 1."""


@final
@dataclass(frozen=True)
class Slowdown(StragglerModel):
    """A straggler: one agent whose computations take `factor` times as long."""

    agent: int
    factor: float

    def __post_init__(self) -> None:
        check_count("agent", self.agent, 0, MOST_RANKS - 1)
        _check_factor("factor", self.factor)

    def draw(self, rng: np.random.Generator) -> float:
        return self.factor


@final
@dataclass(frozen=True)
class ExponentialSlowdown(StragglerModel):
    """Every computation takes 1 + X times as long, X exponential with this mean (arXiv:1803.01113)."""

    mean: float
    agent: int | None = None

    def __post_init__(self) -> None:
        _check_factor("mean", self.mean, low=0.0)
        _check_agent(self.agent)

    def draw(self, rng: np.random.Generator) -> float:
        return 1.0 + float(rng.exponential(self.mean))


@final
@dataclass(frozen=True)
class HeavyTailedSlowdown(StragglerModel):
    """Every computation takes X times as long, X of Pareto's law: P(X > x) = x^−shape, for x ≥ 1.

    The mean is shape / (shape − 1); the variance is infinite up to shape 2.
    """

    shape: float = 2.0
    agent: int | None = None

    def __post_init__(self) -> None:
        if not is_number(self.shape) or self.shape <= 1.0:
            raise ConfigurationError(
                f"shape is {shown(self.shape)}: it must be a number greater than 1, or the mean is infinite"
            )
        _check_agent(self.agent)

    def draw(self, rng: np.random.Generator) -> float:
        return 1.0 + float(rng.pareto(self.shape))


@final
class StragglerDelay:
    """The delays of one agent together; its draws are its own, and the same for equal seeds."""

    def __init__(self, stragglers: Iterable[StragglerModel], rank: int, seed: int) -> None:
        self._own = [slow for slow in stragglers if slow.agent in (None, rank)]
        self._rng = np.random.default_rng([seed, rank, 0x510])

    def __bool__(self) -> bool:
        return bool(self._own)

    def factor(self) -> float:
        """The multiple of the next computation."""
        return math.prod(slow.draw(self._rng) for slow in self._own)


def check_stragglers(given: object, agents: int) -> tuple[StragglerModel, ...]:
    """The stragglers as a tuple. Raises `ConfigurationError` for a stranger, or an agent that is not."""
    listed = (given,) if isinstance(given, StragglerModel) else given
    if not isinstance(listed, (tuple, list)):
        raise ConfigurationError(
            f"slow is {given!r}: it must be a tuple such as (Slowdown(agent=3, factor=4),)"
        )
    for slow in listed:
        if not isinstance(slow, StragglerModel):
            raise ConfigurationError(
                f"slow has {slow!r}: it must be a Slowdown(agent=3, factor=4) or the like"
            )
        everyone = slow.agent is None and not isinstance(slow, Slowdown)
        if not everyone and (isinstance(slow.agent, bool) or slow.agent not in range(agents)):
            raise ConfigurationError(
                f"{slow!r} names the agent {slow.agent!r}: the experiment's agents are 0 to {agents - 1}"
            )
    return tuple(listed)


def _check_factor(name: str, value: object, low: float = 1.0) -> None:
    if not is_number(value) or not low <= value <= SLOWEST:  # type: ignore[operator]
        raise ConfigurationError(f"{name} is {shown(value)}: it must be from {low:g} to {SLOWEST:,.0f}")


def _check_agent(agent: object) -> None:
    if agent is not None:
        check_count("agent", agent, 0, MOST_RANKS - 1)
