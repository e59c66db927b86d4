"""Compute times of gradients in a simulation: constant, random, or as they were measured"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.checks import KnownKeywords, check_items, check_number
from d5ray.errors import ConfigurationError


class ComputeTime(KnownKeywords, ABC):
    """Gives the seconds of one agent's forward and backward pass."""

    @abstractmethod
    def seconds(self, rng: np.random.Generator) -> float:
        """The time of the next computation, greater than 0; rng is the agent's own."""


@final
@dataclass(frozen=True)
class ConstantTime(ComputeTime):
    """Every computation takes so long."""

    duration_seconds: float = 1e-3

    def __post_init__(self) -> None:
        check_number("duration_seconds", self.duration_seconds, low=0.0, low_included=False)

    def seconds(self, rng: np.random.Generator) -> float:
        return self.duration_seconds


@final
@dataclass(frozen=True)
class LogNormalTime(ComputeTime):
    """exp N(ln median, sigma²), as steps on a shared machine: now and then one takes far longer."""

    median_seconds: float = 1e-3
    sigma: float = 0.1

    def __post_init__(self) -> None:
        check_number("median_seconds", self.median_seconds, low=0.0, low_included=False)
        check_number("sigma", self.sigma, low=0.0, low_included=True)

    def seconds(self, rng: np.random.Generator) -> float:
        return self.median_seconds * float(np.exp(self.sigma * rng.standard_normal()))


@final
@dataclass(frozen=True)
class MeasuredTime(ComputeTime):
    """Drawn from the durations that were measured in a run: `MeasuredTime.of(Run.find("last").tables())`."""

    durations_seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        durations = check_items("durations_seconds", self.durations_seconds, "a tuple of seconds")
        object.__setattr__(self, "durations_seconds", durations)
        if not self.durations_seconds:
            raise ConfigurationError("durations_seconds is empty: give at least one that was measured")
        for duration in self.durations_seconds:
            check_number("durations_seconds", duration, low=0.0, low_included=False)

    @classmethod
    def of(cls, tables: Mapping[str, Any]) -> "MeasuredTime":
        """The forward and backward times of the steps with samples after the warm-up, from a run's tables."""
        import pyarrow.compute as pc  # noqa: PLC0415

        samples = tables["samples"]
        steps = samples.filter(pc.equal(samples["phase"], "train"))
        parts = [
            steps.filter(pc.equal(steps["metric"], name))["value"].to_numpy()
            for name in ("forward_time", "backward_time")
        ]
        if not len(parts[0]) or len(parts[0]) != len(parts[1]):
            raise ConfigurationError("the run measured no forward and backward times after its warm-up")
        return cls(tuple(float(seconds) for seconds in parts[0] + parts[1] if seconds > 0))

    def seconds(self, rng: np.random.Generator) -> float:
        return self.durations_seconds[int(rng.integers(len(self.durations_seconds)))]
