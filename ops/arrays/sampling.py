"""Values between the elements of an array, and their gradients: nearest, linear and cubic"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, final

from d5ray.operators.array_operator import Array

# By a tap's distance from the element below: weight and slope as functions of the fraction t, 0 ≤ t < 1.
Taps = dict[int, tuple[Callable[[Array], Array], Callable[[Array], Array]]]
A = -0.75  # of the cubic convolution, as in PyTorch and ONNX


def _near(s: Array) -> Array:
    return ((A + 2) * s - (A + 3)) * s * s + 1


def _near_slope(s: Array) -> Array:
    return (3 * (A + 2) * s - 2 * (A + 3)) * s


def _far(s: Array) -> Array:
    return ((A * s - 5 * A) * s + 8 * A) * s - 4 * A


def _far_slope(s: Array) -> Array:
    return (3 * A * s - 10 * A) * s + 8 * A


KERNELS: dict[str, Taps] = {
    "nearest": {0: (lambda t: t * 0 + 1, lambda t: t * 0)},
    "linear": {0: (lambda t: 1 - t, lambda t: t * 0 - 1), 1: (lambda t: t, lambda t: t * 0 + 1)},
    "cubic": {  # R. Keys, Cubic convolution interpolation, 1981
        -1: (lambda t: _far(t + 1), lambda t: _far_slope(t + 1)),
        0: (_near, _near_slope),
        1: (lambda t: _near(1 - t), lambda t: -_near_slope(1 - t)),
        2: (lambda t: _far(2 - t), lambda t: -_far_slope(2 - t)),
    },
}


@final
@dataclass(frozen=True)
class Sampling:
    """y(n, c, p) = Σ weight · x(n, c, element), over the elements around the point p.

    x (n, channels, *sizes), points (n, points, axes) counted in elements. padding: what stands outside, as in
    GridSample: zeros, border, or reflection, whose mirror is the outermost element's middle or, where
    corners are not aligned, its edge.
    """

    kernel: str
    padding: str = "zeros"
    align_corners: bool = False

    def forward(self, xp: Any, x: Array, points: Array) -> Array:
        """The sampled values y (n, channels, points)."""
        flat, total = x.reshape(*x.shape[:2], -1), 0
        for element, weight, _ in self.taps(xp, points, x.shape[2:]):
            total = total + weight[:, None] * xp.take_along_axis(flat, element[:, None], axis=2)
        return xp.asarray(total, dtype=x.dtype)

    def backward(self, xp: Any, dy: Array, x: Array, points: Array) -> tuple[Array, Array]:
        """The gradients dx and dpoints."""
        flat = x.reshape(*x.shape[:2], -1)
        dx, dpoints = xp.zeros_like(flat), xp.zeros_like(points)
        n, c = (xp.arange(size) for size in flat.shape[:2])
        for element, weight, slopes in self.taps(xp, points, x.shape[2:]):
            xp.add.at(dx, (n[:, None, None], c[None, :, None], element[:, None]), dy * weight[:, None])
            moved = (dy * xp.take_along_axis(flat, element[:, None], axis=2)).sum(axis=1)
            for axis, slope in enumerate(slopes):
                dpoints[..., axis] += moved * slope
        return dx.reshape(x.shape), dpoints

    def taps(
        self, xp: Any, points: Array, sizes: tuple[int, ...]
    ) -> Iterator[tuple[Array, Array, list[Array]]]:
        """Every element around the points: its place in the flattened x, its weight, and that one's slopes.

        Each is (n, points); there is a slope for every axis of the points.
        """
        kernel = KERNELS[self.kernel]
        below = xp.rint(points) if self.kernel == "nearest" else xp.floor(points)
        t = points - below
        for offsets in product(kernel, repeat=len(sizes)):
            element, there = 0, 1
            weights = [kernel[offset][0](t[..., axis]) for axis, offset in enumerate(offsets)]
            slopes = [kernel[offset][1](t[..., axis]) for axis, offset in enumerate(offsets)]
            for axis, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
                place, inside = self._padded(xp, below[..., axis].astype("int64") + offset, size)
                element = element * size + place
                there = there * inside
            whole = [_product(weights[:axis] + weights[axis + 1 :], there) for axis in range(len(sizes))]
            yield (
                element,
                _product(weights, there),
                [slope * rest for slope, rest in zip(slopes, whole, strict=True)],
            )

    def _padded(self, xp: Any, place: Array, size: int) -> tuple[Array, Array]:
        """A place within the axis, and whether what stands there counts."""
        if self.padding == "reflection":
            period = 2 * (size - 1) if self.align_corners else 2 * size
            place = place % period if period else place * 0
            mirrored = period - place if self.align_corners else period - 1 - place
            place = xp.where(place < size, place, mirrored)
        inside = (place >= 0) & (place < size) if self.padding == "zeros" else xp.ones_like(place, dtype=bool)
        return xp.clip(place, 0, size - 1), inside


def _product(factors: list[Array], start: Array) -> Array:
    for factor in factors:
        start = start * factor
    return start
