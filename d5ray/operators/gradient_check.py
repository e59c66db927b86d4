"""An operator's gradient against differences, element by element: the whole Jacobian"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from d5ray.operators.point import Point
from d5ray.operators.slopes import Slope, rounding, slope, step_of

Numbers = np.ndarray[Any, Any]

KINK: Final = 1e-3  # relative difference of two slopes from which on there is no derivative to speak of
TINY: Final = 1e-30


@final
@dataclass(frozen=True)
class Deviation:
    """What a gradient is somewhere, and what differences say; kinks: elements that have no derivative."""

    what: str
    found: float
    expected: float
    allowed: float
    where: str
    kinks: int = 0

    @property
    def apart(self) -> float:
        """Infinite where one is not a number."""
        difference = abs(self.found - self.expected)
        return math.inf if math.isnan(difference) else difference

    @property
    def passed(self) -> bool:
        return self.apart <= self.allowed

    def __str__(self) -> str:
        verdict = "agrees" if self.passed else "is WRONG"
        kinks = f"; {self.kinks} at a kink, where any slope between those to both sides is right"
        return (
            f"{self.what} {verdict}: {self.found:.9g}, differences give {self.expected:.9g}, apart "
            f"{self.apart:.2g} of {self.allowed:.2g} allowed, {self.where}" + (kinks if self.kinks else "")
        )


class Method(ABC):
    """A way to compare a gradient with differences."""

    @abstractmethod
    def deviations(self, point: Point, tolerance: float) -> tuple[Deviation, ...]:
        """What was compared; the worst of each."""

    @abstractmethod
    def told(self, point: Point) -> str:
        """The way, for a report."""


@final
@dataclass(frozen=True)
class Elements(Method):
    """Every element of the Jacobian: one difference for each input element, one cotangent for each output.

    Allowed is `tolerance` times the largest derivative of the same output element with respect to the same
    input, and what rounding of that output can do.
    """

    def told(self, point: Point) -> str:
        return f"the whole Jacobian, {point.output_size} × {point.input_size} elements"

    def deviations(self, point: Point, tolerance: float) -> tuple[Deviation, ...]:
        found = self._found(point)
        slopes = self._slopes(point)  # each (outputs, inputs)
        centre = point.vector(point.outputs)[:, None]
        steps = step_of(point.epsilon) * np.concatenate([scale.ravel() for scale in point.scales()])
        own = np.concatenate(
            [
                np.abs(part).max(axis=1, initial=0.0, keepdims=True).repeat(part.shape[1], axis=1)
                for part in np.split(slopes.value, self._edges(point), axis=1)
            ],
            axis=1,
        )
        allowed = tolerance * own + rounding(centre, point.epsilon, steps[None, :]) + TINY
        between = np.maximum(slopes.error, np.abs(slopes.right - slopes.left))
        kinks = between > KINK * own + allowed
        low, high = np.minimum(slopes.left, slopes.right), np.maximum(slopes.left, slopes.right)
        nearest = np.where(kinks, np.clip(found, low, high), slopes.value)
        return tuple(self._worst(point, at, found, nearest, allowed, kinks) for at in range(len(point.free)))

    def _edges(self, point: Point) -> Numbers:
        """Where the columns of each input but the first begin."""
        return np.cumsum([scale.size for scale in point.scales()])[:-1]

    def _found(self, point: Point) -> Numbers:
        rows = np.zeros((point.output_size, point.input_size))
        for row in range(point.output_size):
            weights = np.zeros(point.output_size)
            weights[row] = 1.0
            rows[row] = np.concatenate([each.ravel() for each in point.gradient(weights)])
        return rows

    def _slopes(self, point: Point) -> Slope:
        step, columns = step_of(point.epsilon), []
        scales, centre = point.scales(), point.vector(point.outputs)
        for number, scale in enumerate(scales):
            for element in range(scale.size):
                ways = [np.zeros(each.shape) for each in scales]
                ways[number].flat[element] = 1.0
                columns.append(slope(point.along(ways), centre, step * float(scale.flat[element])))
        parts = ("value", "error", "left", "right")
        return Slope(*(np.stack([getattr(column, part) for column in columns], axis=1) for part in parts))

    def _worst(
        self, point: Point, number: int, found: Numbers, expected: Numbers, allowed: Numbers, kinks: Numbers
    ) -> Deviation:
        """Of the columns that belong to one input."""
        begin = int([0, *self._edges(point)][number])
        columns = slice(begin, begin + point.scales()[number].size)
        excess = np.abs(found - expected)[:, columns] / allowed[:, columns]
        excess = np.where(np.isnan(excess), np.inf, excess)
        row, column = np.unravel_index(int(np.argmax(excess)), excess.shape)
        output, element = point.place(int(row), output=True)
        _, wrt = point.place(begin + int(column))
        return Deviation(
            f"input {point.free[number]}",
            float(found[row, begin + column]),
            float(expected[row, begin + column]),
            float(allowed[row, begin + column]),
            f"d output {output} {element} / d input {point.free[number]} {wrt}",
            int(np.count_nonzero(kinks[:, columns])),
        )
