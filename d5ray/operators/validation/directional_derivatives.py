"""An operator's gradient against differences along random directions, for operators of many elements"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, final

import numpy as np

from d5ray.operators.validation.finite_differences import finite_difference, rounding, step_of
from d5ray.operators.validation.gradient_check import KINK, TINY, Deviation, Method
from d5ray.operators.validation.linearization import LinearizationPoint

Numbers = np.ndarray[Any, Any]
SMALLER: Final = (1.0, 1e-2)  # times the step: many elements have a kink near one of them


@final
@dataclass(frozen=True)
class DirectionalDerivatives(Method):
    """Σ u · outputs for random u, along random ways of ±1 a step for each element of one input after another.

    An error in a single element changes every one of them. Allowed is `tolerance` times the norm of the
    input's gradient, and what rounding can do. Where they disagree, halving the way finds the element.
    """

    count: int
    seed: int

    def told(self, point: LinearizationPoint) -> str:
        sizes = f"{point.input_size:,} input and {point.output_size:,} output elements"
        return f"{self.count} random directions of {sizes}"

    def deviations(self, point: LinearizationPoint, tolerance: float) -> tuple[Deviation, ...]:
        random = np.random.default_rng(self.seed)
        made: list[Deviation] = []
        for number in range(self.count):
            weights = random.standard_normal(point.output_size)
            weights[~np.isfinite(point.vector(point.outputs))] = 0.0
            gradient = point.gradient(weights)
            ways = [scale * random.choice([-1.0, 1.0], scale.shape) for scale in point.scales()]
            edges = [0, *np.cumsum([way.size for way in ways])]
            for at, (low, high) in zip(point.free, pairwise(edges), strict=True):
                what, only = f"input {at}, direction {number}", _within(ways, low, high)
                found = self._compared(point, what, tolerance, weights, gradient, only)
                made.append(found)
                if not found.passed:
                    return (*made, self._narrowed(point, tolerance, weights, gradient, ways, low, high))
        return tuple(made)

    def _compared(
        self,
        point: LinearizationPoint,
        what: str,
        tolerance: float,
        weights: Numbers,
        gradient: Sequence[Numbers],
        ways: Sequence[Numbers],
        where: str = "of Σ u · outputs along it",
    ) -> Deviation:
        used, moved, best = weights != 0, point.along(ways), None
        outputs = point.vector(point.outputs)[used]
        centre = weights[used] @ outputs
        for smaller in SMALLER:
            step = step_of(point.epsilon) * smaller
            tried = finite_difference(lambda by: weights[used] @ moved(by)[used], centre, step)
            noise = float(rounding(np.linalg.norm(weights[used] * outputs), point.epsilon, step))
            if best is None or tried.error + noise < best[0].error + best[1]:
                best = tried, noise
        assert best is not None
        chosen, noise = best
        pairs = zip(gradient, ways, strict=True)
        terms = [np.multiply(each, way, out=np.zeros_like(way), where=way != 0) for each, way in pairs]
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
        point: LinearizationPoint,
        tolerance: float,
        weights: Numbers,
        gradient: Sequence[Numbers],
        ways: Sequence[Numbers],
        low: int,
        high: int,
    ) -> Deviation:
        """The element that is most wrong of those from `low` up to `high`, by halves."""
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
