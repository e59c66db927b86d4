"""Slopes from differences: five points, how far they can be trusted, and both sides of a kink

The three-point quotient D(h) = (f(x + h) − f(x − h)) / 2h is off by h² f‴/6, and rounding adds about
ε |f| / h: the best h is near the cube root of ε, where both are ε^(2/3) (Press et al., Numerical Recipes,
section 5.7). A second quotient over twice the step takes the first error away, (4 D(h) − D(2h)) / 3, and says
how large it was. The step stays at ε^(1/3) though five points would allow a wider one, so that seldom a kink
(of Relu, of a maximum) lies within it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

Numbers = np.ndarray[Any, Any]
JUMP: Final = 0.05
ROUNDINGS: Final = 64.0  # of an output, in units of its last place, that an operator may be off by


@final
@dataclass(frozen=True)
class FiniteDifference:
    """A finite difference of every output along one way: the value, D(h), and both sides' slopes, to h²."""

    value: Numbers
    near: Numbers
    left: Numbers
    right: Numbers

    @property
    def error(self) -> Numbers:
        """The error of D(h) as an estimate of the slope."""
        found: Numbers = np.abs(self.value - self.near)
        return found

    @property
    def jump(self) -> Numbers:
        """The places where the function jumps: over twice the step the quotient is half as large."""
        wide = 4 * self.near - 3 * self.value
        found: Numbers = np.abs(self.near - 2 * wide) <= JUMP * np.abs(self.near)
        return found


def step_of(epsilon: float) -> float:
    """The step for values near 1.

    >>> f"{step_of(np.finfo(float).eps):.1e}"
    '6.1e-06'
    """
    return float(epsilon ** (1 / 3))


def finite_difference(function: Callable[[float], Numbers], centre: Numbers, step: float) -> FiniteDifference:
    """The derivative at 0 of a function of one number with values (outputs,); centre: its value there."""
    one, other, far, further = (function(by * step) for by in (1, -1, 2, -2))
    with np.errstate(invalid="ignore"):  # beyond the edge of where the function is defined
        near, wide = (one - other) / (2 * step), (far - further) / (4 * step)
        left = (3 * centre - 4 * other + further) / (2 * step)
        right = (4 * one - far - 3 * centre) / (2 * step)
        return FiniteDifference((4 * near - wide) / 3, near, left, right)


def rounding(values: Any, epsilon: float, step: Any) -> Any:
    """The error that rounding of the values can make in a finite difference."""
    return ROUNDINGS * epsilon * np.abs(values) / step
