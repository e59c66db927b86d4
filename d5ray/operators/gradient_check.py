"""An operator's gradient against differences: the whole Jacobian, or along random directions"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from d5ray.errors import ValidationError
from d5ray.operators.framework import Pullback
from d5ray.operators.slopes import Slope, rounding, slope, step_of

Numbers = np.ndarray[Any, Any]
Place = tuple[int, tuple[int, ...]]  # the number of an input or output, and the element

KINK: Final = 1e-3  # relative difference of two slopes from which on there is no derivative to speak of
SMALLER: Final = (1.0, 1e-2)  # times the step: many elements have a kink near one of them
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
        return abs(self.found - self.expected)

    @property
    def passed(self) -> bool:
        return self.apart <= self.allowed  # false for nan

    def __str__(self) -> str:
        verdict = "agrees" if self.passed else "is WRONG"
        kinks = f"; {self.kinks} at a kink, where any slope between those to both sides is right"
        return (
            f"{self.what} {verdict}: {self.found:.9g}, differences give {self.expected:.9g}, apart "
            f"{self.apart:.2g} of {self.allowed:.2g} allowed, {self.where}" + (kinks if self.kinks else "")
        )


@final
@dataclass(frozen=True)
class Point:
    """An operator at its inputs: `at` gives its outputs at others, floating-point ones alone in one vector.

    values: the inputs; free: those of floating-point type; pullback: the gradient at `values`.
    """

    values: tuple[Numbers | None, ...]
    free: tuple[int, ...]
    at: Callable[[Sequence[Numbers | None]], tuple[Numbers, ...]]
    outputs: tuple[Numbers, ...]
    pullback: Pullback
    epsilon: float

    @property
    def taken(self) -> tuple[int, ...]:
        """The outputs that have a gradient."""
        return tuple(at for at, each in enumerate(self.outputs) if each.dtype.kind == "f" and each.size)

    @property
    def input_size(self) -> int:
        return sum(self._input(at).size for at in self.free)

    @property
    def output_size(self) -> int:
        return sum(self.outputs[at].size for at in self.taken)

    def vector(self, outputs: Sequence[Numbers]) -> Numbers:
        """The outputs that have a gradient, one behind the other, (outputs,)."""
        parts = [outputs[at].astype(np.float64).ravel() for at in self.taken]
        return np.concatenate(parts) if parts else np.zeros(0)

    def along(self, ways: Sequence[Numbers]) -> Callable[[float], Numbers]:
        """The outputs as a function of how far the free inputs are moved, each its own way."""

        def moved(distance: float) -> Numbers:
            inputs = list(self.values)
            for at, way in zip(self.free, ways, strict=True):
                inputs[at] = (self._input(at) + distance * way).astype(self._input(at).dtype)
            return self.vector(self.at(inputs))

        return moved

    def scales(self) -> list[Numbers]:
        """What a step is for each element: its size where it is larger than 1."""
        return [np.maximum(1.0, np.abs(self._input(at))).astype(np.float64) for at in self.free]

    def gradient(self, weights: Numbers) -> list[Numbers]:
        """Of Σ weights · outputs, for every free input; zeros where the operator says that there is none."""
        cotangents: list[Numbers | None] = [None] * len(self.outputs)
        begin = 0
        for at in self.taken:
            output = self.outputs[at]
            cotangents[at] = weights[begin : begin + output.size].reshape(output.shape).astype(output.dtype)
            begin += output.size
        found = self.pullback(cotangents)
        if len(found) != len(self.values):
            raise ValidationError(
                f"the gradient function gave {len(found)} arrays: it must give one, or None, for each of "
                f"{len(self.values)} inputs"
            )
        return [self._fitting(at, found[at]) for at in self.free]

    def place(self, index: int, output: bool = False) -> Place:
        """Where an element of the vector of all free inputs, or of all outputs, is."""
        for at in self.taken if output else self.free:
            array = self.outputs[at] if output else self._input(at)
            if index < array.size:
                return at, tuple(map(int, np.unravel_index(index, array.shape)))
            index -= array.size
        raise IndexError(index)

    def _fitting(self, at: int, gradient: Numbers | None) -> Numbers:
        shape = self._input(at).shape
        if gradient is None:
            return np.zeros(shape)
        if gradient.shape != shape:
            raise ValidationError(
                f"the gradient of input {at} has the shape {gradient.shape}: it must be the input's, {shape}"
            )
        return gradient.astype(np.float64)

    def _input(self, at: int) -> Numbers:
        value = self.values[at]
        assert value is not None
        return value


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

    Allowed is `tolerance` times the largest derivative of the same output element, and what rounding of that
    output can do.
    """

    def told(self, point: Point) -> str:
        return f"the whole Jacobian, {point.output_size} × {point.input_size} elements"

    def deviations(self, point: Point, tolerance: float) -> tuple[Deviation, ...]:
        found = self._found(point)
        slopes = self._slopes(point)  # each (outputs, inputs)
        centre = point.vector(point.outputs)[:, None]
        steps = step_of(point.epsilon) * np.concatenate([scale.ravel() for scale in point.scales()])
        own = np.abs(slopes.value).max(axis=1, initial=0.0, keepdims=True)
        allowed = tolerance * own + rounding(centre, point.epsilon, steps[None, :]) + TINY
        between = np.maximum(slopes.error, np.abs(slopes.right - slopes.left))
        kinks = between > KINK * own + allowed
        low, high = np.minimum(slopes.left, slopes.right), np.maximum(slopes.left, slopes.right)
        nearest = np.where(kinks, np.clip(found, low, high), slopes.value)
        return tuple(self._worst(point, at, found, nearest, allowed, kinks) for at in range(len(point.free)))

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
        sizes = [scale.size for scale in point.scales()]
        begin = sum(sizes[:number])
        columns = slice(begin, begin + sizes[number])
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


@final
@dataclass(frozen=True)
class Directions(Method):
    """Σ u · outputs for random u, along random ways of ±1 a step for each input element.

    An error in a single element changes every one of them. Allowed is `tolerance` times the norm of the
    gradient, and what rounding can do. Where they disagree, halving the way finds the element.
    """

    count: int
    seed: int

    def told(self, point: Point) -> str:
        sizes = f"{point.input_size:,} input and {point.output_size:,} output elements"
        return f"{self.count} random directions of {sizes}"

    def deviations(self, point: Point, tolerance: float) -> tuple[Deviation, ...]:
        random = np.random.default_rng(self.seed)
        made: list[Deviation] = []
        for number in range(self.count):
            weights = random.standard_normal(point.output_size)
            gradient = point.gradient(weights)
            ways = [scale * random.choice([-1.0, 1.0], scale.shape) for scale in point.scales()]
            what = f"direction {number}"
            found = self._compared(point, what, tolerance, weights, gradient, ways)
            if not found.passed:
                narrow = self._narrowed(point, tolerance, weights, gradient, ways)
                return (*made, found, narrow)
            made.append(found)
        return tuple(made)

    def _compared(
        self,
        point: Point,
        what: str,
        tolerance: float,
        weights: Numbers,
        gradient: Sequence[Numbers],
        ways: Sequence[Numbers],
        where: str = "of Σ u · outputs along it",
    ) -> Deviation:
        centre = weights @ point.vector(point.outputs)
        moved, best = point.along(ways), None
        for smaller in SMALLER:
            step = step_of(point.epsilon) * smaller
            tried = slope(lambda by: weights @ moved(by), centre, step)
            noise = float(rounding(np.linalg.norm(weights * moved(0.0)), point.epsilon, step))
            if best is None or tried.error + noise < best[0].error + best[1]:
                best = tried, noise
        assert best is not None
        chosen, noise = best
        terms = [each * way for each, way in zip(gradient, ways, strict=True)]
        size = float(np.sqrt(sum(float(np.vdot(term, term)) for term in terms)))
        return Deviation(
            what,
            float(sum(term.sum() for term in terms)),
            float(chosen.value),
            tolerance * size + noise + TINY,
            where
            + (" (two steps disagree: it may cross kinks)" if chosen.error > KINK * size + noise else ""),
        )

    def _narrowed(
        self,
        point: Point,
        tolerance: float,
        weights: Numbers,
        gradient: Sequence[Numbers],
        ways: Sequence[Numbers],
    ) -> Deviation:
        """The element that is most wrong of those along this way, by halves."""
        low, high = 0, point.input_size
        while high - low > 1:
            middle = (low + high) // 2
            halves = [
                self._compared(point, "", tolerance, weights, gradient, _within(ways, a, b))
                for a, b in ((low, middle), (middle, high))
            ]
            low, high = (low, middle) if halves[0].apart >= halves[1].apart else (middle, high)
        at, element = point.place(low)
        only = _within(ways, low, high)
        return self._compared(
            point, f"input {at} {element}", tolerance, weights, gradient, only, "found by halving the way"
        )


def _within(ways: Sequence[Numbers], low: int, high: int) -> list[Numbers]:
    """The ways of the elements from `low` up to `high`, zeros elsewhere."""
    flat = np.concatenate([way.ravel() for way in ways])
    flat[:low] = flat[high:] = 0.0
    edges = np.cumsum([way.size for way in ways])[:-1]
    return [part.reshape(way.shape) for part, way in zip(np.split(flat, edges), ways, strict=True)]
