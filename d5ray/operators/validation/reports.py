"""Reports of the checks of an operator, as lines for people and numbers for programs"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.operators.validation.error_norms import ErrorNorms
from d5ray.operators.validation.gradient_check import Deviation
from d5ray.operators.validation.heat_map import heat_map

Numbers = np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class ForwardReport:
    """The result of `check_forward` for every output; printing it gives a line for each."""

    operator: str
    outputs: tuple[ErrorNorms, ...]
    found: tuple[Numbers, ...]
    expected: tuple[Numbers, ...]

    @property
    def passed(self) -> bool:
        """True if every output agrees with its reference."""
        return all(each.passed for each in self.outputs)

    def picture(self, output: int = 0) -> bytes:
        """The relative difference of an output as a heat map, a PNG."""
        return heat_map(self.found[output], self.expected[output], f"{self.operator}, output {output}")

    def __str__(self) -> str:
        return _told(self.operator, self.passed, self.outputs)


@final
@dataclass(frozen=True)
class GradientReport:
    """The result of `check_gradient`; printing it gives a line for each input, or for each direction."""

    operator: str
    method: str
    step: float  # for values up to 1; times the value for larger ones
    tolerance: float
    deviations: tuple[Deviation, ...]
    skipped: tuple[int, ...]  # inputs that have no gradient, being no floating-point numbers
    without: tuple[int, ...] = ()  # those for which the operator gave None

    @property
    def passed(self) -> bool:
        """True if no gradient departs from the differences by more than is allowed."""
        return all(each.passed for each in self.deviations)

    def __str__(self) -> str:
        way = f"{self.method}; steps of {self.step:.1e}, to a relative {self.tolerance:g}"
        skipped = [f"input {at} is no floating-point array and has no gradient" for at in self.skipped]
        none = [
            f"input {at} got None, which is no gradient, so that nothing trains it" for at in self.without
        ]
        return _told(self.operator, self.passed, (way, *self.deviations, *none, *skipped))


@final
@dataclass(frozen=True)
class Variation:
    """The variance of one output's elements over several runs, and which of them vary.

    varies: (output's shape), true where not all runs gave the same bits. at: where the variance is largest.
    """

    name: str
    runs: int
    largest_variance: float
    mean_variance: float
    relative: float  # the largest standard deviation over the largest value
    at: tuple[int, ...]
    varies: Numbers
    tolerance: float

    @property
    def bitwise(self) -> bool:
        """True if all runs gave the same bits."""
        return not self.varies.any()

    @property
    def passed(self) -> bool:
        """True if all runs gave the same bits, or the relative deviation is within the tolerance."""
        return self.bitwise or 0 < self.tolerance >= self.relative

    def __str__(self) -> str:
        if self.bitwise:
            return f"{self.name}: the same bits in {self.runs} runs"
        return (
            f"{self.name}: {np.count_nonzero(self.varies)} of {self.varies.size} elements vary over "
            f"{self.runs} runs, variance {self.largest_variance:.3g} at {self.at}, {self.mean_variance:.3g} "
            f"in the mean; relative deviation {self.relative:.2g}, allowed {self.tolerance:g}"
        )


@final
@dataclass(frozen=True)
class RepeatabilityReport:
    """The result of `check_repeatability` for every output; printing it gives a line for each."""

    operator: str
    outputs: tuple[Variation, ...]

    @property
    def passed(self) -> bool:
        """True if every output is as repeatable as was asked for."""
        return all(each.passed for each in self.outputs)

    @property
    def bitwise(self) -> bool:
        """True if all runs gave the same bits in every output."""
        return all(each.bitwise for each in self.outputs)

    def __str__(self) -> str:
        return _told(self.operator, self.passed, self.outputs)


def variation(name: str, found: Sequence[Numbers], tolerance: float) -> Variation:
    """The variation of one output over all runs."""
    varies = np.zeros(found[0].shape, dtype=bool)
    for each in found[1:]:
        varies |= _other_bits(each, found[0])
    values = np.stack(found).astype(np.float64)
    with np.errstate(invalid="ignore"):
        variance = np.where(varies, np.nan_to_num(np.var(values, axis=0), nan=np.inf, posinf=np.inf), 0.0)
    largest = float(variance.max(initial=0.0))
    finite = np.abs(values[np.isfinite(values)])
    size = float(finite.max()) if finite.size else 0.0
    at = np.unravel_index(int(np.argmax(variance)), variance.shape) if variance.size else ()
    mean = float(variance.mean()) if variance.size else 0.0
    relative = float(np.sqrt(largest)) / size if size else (np.inf if largest else 0.0)
    return Variation(name, len(found), largest, mean, float(relative), tuple(map(int, at)), varies, tolerance)


def _other_bits(one: Numbers, other: Numbers) -> Numbers:
    """The places where two arrays of one shape and type differ, NaN being equal to the same NaN."""
    rows = [
        np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.dtype.itemsize)
        for array in (one, other)
    ]
    found: Numbers = (rows[0] != rows[1]).any(axis=-1)
    return found


def _told(name: str, passed: bool, lines: Sequence[object]) -> str:
    return "\n  ".join([f"{name}: {'passed' if passed else 'FAILED'}", *map(str, lines)])
