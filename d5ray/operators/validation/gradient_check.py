"""An operator's gradient against differences, element by element: the whole Jacobian"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from d5ray.operators.validation.finite_differences import (
    FiniteDifference,
    finite_difference,
    rounding,
    step_of,
)
from d5ray.operators.validation.linearization import LinearizationPoint

Numbers = np.ndarray[Any, Any]

KINK: Final = 1e-3  # relative difference of two slopes from which on there is no derivative to speak of
TINY: Final = 1e-30


@final
@dataclass(frozen=True)
class Deviation:
    """A gradient somewhere beside what differences give; kinks: elements that have no derivative."""

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
        """True if gradient and differences are no further apart than is allowed."""
        return self.apart <= self.allowed or self.allowed == math.inf

    def __str__(self) -> str:
        verdict = "agrees" if self.passed else "is WRONG"
        kinks = f"; {self.kinks} at a kink, where any slope between both sides' is right, or not defined"
        return (
            f"{self.what} {verdict}: {self.found:.9g}, differences give {self.expected:.9g}, apart "
            f"{self.apart:.2g} of {self.allowed:.2g} allowed, {self.where}" + (kinks if self.kinks else "")
        )


class Method(ABC):
    """A way to compare a gradient with differences."""

    @abstractmethod
    def deviations(self, point: LinearizationPoint, tolerance: float) -> tuple[Deviation, ...]:
        """The deviations of everything that was compared; the worst of each."""

    @abstractmethod
    def told(self, point: LinearizationPoint) -> str:
        """The way, for a report."""


@final
@dataclass(frozen=True)
class Elements(Method):
    """Every element of the Jacobian: one difference for each input element, one cotangent for each output.

    Allowed is `tolerance` times the largest derivative of the same output element with respect to the same
    input, and what rounding of that output can do.
    """

    def told(self, point: LinearizationPoint) -> str:
        return f"the whole Jacobian, {point.output_size} × {point.input_size} elements"

    def deviations(self, point: LinearizationPoint, tolerance: float) -> tuple[Deviation, ...]:
        found = self._found(point)
        differences = self._differences(point)  # each (outputs, inputs)
        undefined = self._undefined(point, differences)
        allowed = np.where(undefined, np.inf, self._allowed(point, tolerance, differences))
        between = np.maximum(differences.error, np.abs(differences.right - differences.left))
        kinks = undefined | (between > KINK * np.abs(differences.value) + allowed)
        sides = np.stack([differences.value, differences.left, differences.right])
        nearest = np.clip(found, sides.min(axis=0), sides.max(axis=0))  # one of them where it is nan
        return tuple(self._worst(point, at, found, nearest, allowed, kinks) for at in range(len(point.free)))

    def _undefined(self, point: LinearizationPoint, differences: FiniteDifference) -> Numbers:
        """The places with nothing to compare: at a jump, and at the edge of the function's domain."""
        parts = (differences.value, differences.near, differences.left, differences.right)
        finite = np.logical_and.reduce([np.isfinite(part) for part in parts])
        inside = np.isfinite(point.vector(point.outputs))[:, None]
        edge = (inside & ~finite).any(axis=0, keepdims=True)  # whose gradient is infinite, or 0 · ∞ elsewhere
        with np.errstate(invalid="ignore"):
            steep = np.abs(differences.near) > 1 / np.sqrt(step_of(point.epsilon))
            found: Numbers = ~finite | edge | (differences.jump & steep)
        return found

    def _allowed(self, point: LinearizationPoint, tolerance: float, differences: FiniteDifference) -> Numbers:
        """The tolerance of each element.

        What rounding does to an output is as large as the output, or as the largest of its tensor where it
        comes of such numbers: as much as the differences show, but no more than those can explain.
        """
        value = np.nan_to_num(differences.value, posinf=0.0, neginf=0.0)
        own = np.concatenate(
            [
                np.abs(part).max(axis=1, initial=0.0, keepdims=True).repeat(part.shape[1], axis=1)
                for part in np.split(value, self._edges(point), axis=1)
            ],
            axis=1,
        )
        scales = np.concatenate([scale.ravel() for scale in point.scales()])
        steps = step_of(point.epsilon) * np.where(scales, scales, 1.0)[None, :]
        centre = np.nan_to_num(point.vector(point.outputs), posinf=0.0, neginf=0.0)[:, None]
        most = 2 * point.epsilon * np.abs(centre).max(initial=0.0) / steps
        error = np.nan_to_num(differences.error, posinf=np.inf, nan=np.inf)
        seen = np.where(error <= most, error, 0.0).max(axis=1, initial=0.0, keepdims=True)
        noise = np.minimum(4 * seen, most)
        allowed: Numbers = tolerance * own + rounding(centre, point.epsilon, steps) + noise + TINY
        return allowed

    def _edges(self, point: LinearizationPoint) -> Numbers:
        """The begins of the columns of each input but the first."""
        return np.cumsum([scale.size for scale in point.scales()])[:-1]

    def _found(self, point: LinearizationPoint) -> Numbers:
        rows = np.zeros((point.output_size, point.input_size))
        for row in range(point.output_size):
            weights = np.zeros(point.output_size)
            weights[row] = 1.0
            rows[row] = np.concatenate([each.ravel() for each in point.gradient(weights)])
        return rows

    def _differences(self, point: LinearizationPoint) -> FiniteDifference:
        step, columns = step_of(point.epsilon), []
        scales, centre = point.scales(), point.vector(point.outputs)
        for number, scale in enumerate(scales):
            for element in range(scale.size):
                ways = [np.zeros(each.shape) for each in scales]
                ways[number].flat[element] = 1.0
                if scale.flat[element]:
                    columns.append(
                        finite_difference(point.along(ways), centre, step * float(scale.flat[element]))
                    )
                else:
                    columns.append(FiniteDifference(*[np.full(len(centre), np.nan)] * 4))
        parts = ("value", "near", "left", "right")
        return FiniteDifference(
            *(np.stack([getattr(column, part) for column in columns], axis=1) for part in parts)
        )

    def _worst(
        self,
        point: LinearizationPoint,
        number: int,
        found: Numbers,
        expected: Numbers,
        allowed: Numbers,
        kinks: Numbers,
    ) -> Deviation:
        """The worst deviation of the columns that belong to one input."""
        begin = int([0, *self._edges(point)][number])
        columns = slice(begin, begin + point.scales()[number].size)
        with np.errstate(invalid="ignore"):
            excess = np.abs(found - expected)[:, columns] / allowed[:, columns]
        wrong = np.isnan(found[:, columns]) & np.isfinite(allowed[:, columns])
        excess = np.where(wrong, np.inf, np.nan_to_num(excess, nan=0.0))
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
