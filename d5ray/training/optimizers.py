"""Level-2 optimizers: a gradient becomes new parameters, in place on the flat buffer."""

import math
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, final

from d5ray.errors import ConfigurationError
from d5ray.training.arrays import zeros_like

State = dict[str, Any]


class Optimizer(ABC):
    """An update rule as frozen data; what it remembers between steps is a state of its own.

    The same rule works on the arrays of NumPy, PyTorch and CuPy.

    elementwise: whether the rule treats every coordinate by itself, and its state is arrays like x alone, so
    that a part of x can be updated with the same part of the others.
    """

    learning_rate: float
    elementwise: ClassVar[bool] = False

    def state(self, x: Any) -> State:
        """What the rule remembers, at the start: nothing, unless it says otherwise."""
        return {}

    @abstractmethod
    def update(self, x: Any, gradient: Any, state: State) -> None:
        """Move the flat parameters x (n,) in place by the flat gradient (n,)."""


@final
@dataclass(frozen=True)
class SGD(Optimizer):
    """x ← x − η g   (Robbins and Monro, doi 10.1214/aoms/1177729586)"""

    elementwise: ClassVar[bool] = True
    learning_rate: float

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, low=0.0, low_included=False)

    def update(self, x: Any, gradient: Any, state: State) -> None:
        x -= self.learning_rate * gradient


@final
@dataclass(frozen=True)
class Momentum(Optimizer):
    """v ← μ v + g;  x ← x − η v   (Polyak's heavy ball, doi 10.1016/0041-5553(64)90137-5, as in PyTorch)"""

    elementwise: ClassVar[bool] = True
    learning_rate: float
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, low=0.0, low_included=False)
        check_number("momentum", self.momentum, low=0.0, low_included=True, high=1.0)

    def state(self, x: Any) -> State:
        return {"velocity": zeros_like(x)}

    def update(self, x: Any, gradient: Any, state: State) -> None:
        velocity = state["velocity"]
        velocity *= self.momentum
        velocity += gradient
        x -= self.learning_rate * velocity


@final
@dataclass(frozen=True)
class Nesterov(Optimizer):
    """v ← μ v + g;  x ← x − η (g + μ v)   (Nesterov's momentum as Sutskever et al. write it, PMLR 28(3):1139)

    x stands at the point where the next gradient is taken, as in PyTorch with nesterov=True.
    """

    elementwise: ClassVar[bool] = True
    learning_rate: float
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, low=0.0, low_included=False)
        check_number("momentum", self.momentum, low=0.0, low_included=True, high=1.0)

    def state(self, x: Any) -> State:
        return {"velocity": zeros_like(x)}

    def update(self, x: Any, gradient: Any, state: State) -> None:
        velocity = state["velocity"]
        velocity *= self.momentum
        velocity += gradient
        x -= self.learning_rate * (gradient + self.momentum * velocity)


def check_number(name: str, value: object, *, low: float, low_included: bool, high: float = math.inf) -> None:
    """Raise `ConfigurationError` unless value is a finite number between low and high (high excluded).

    >>> check_number("momentum", 1.5, low=0.0, low_included=True, high=1.0)
    Traceback (most recent call last):
    d5ray.errors.ConfigurationError: momentum is 1.5: it must be a number from 0 up to, but not, 1
    """
    number = (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max  # false for nan too; math.isfinite overflows on a huge integer
    )
    if number and (value > low or (low_included and value == low)) and value < high:  # type: ignore[operator]
        return
    bounds = f"from {low:g} up" if low_included else f"greater than {low:g}"
    if high != math.inf:
        bounds += f" to, but not, {high:g}" if low_included else f" and smaller than {high:g}"
    raise ConfigurationError(f"{name} is {value!r}: it must be a number {bounds}")
