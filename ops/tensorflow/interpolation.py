"""Interpolation: places of a resized axis's elements in the original, and the weights there"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.operators.nodes.node_context import Site

Numbers = np.ndarray[Any, Any]


@final
@dataclass(frozen=True)
class Axis:
    """One axis that is resized: its number, size before and after, their ratio, and where the region lies."""

    number: int
    before: int
    after: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)

    @property
    def changes(self) -> bool:
        """True if the resizing does anything along this axis."""
        return self.before != self.after or self.scale != 1.0 or self.region != (0.0, 1.0)


def _half_pixel(axis: Axis) -> Numbers:
    return (np.arange(axis.after) + 0.5) / axis.scale - 0.5


def _half_pixel_symmetric(axis: Axis) -> Numbers:
    wanted = axis.scale * axis.before
    return axis.before / 2 * (1 - axis.after / wanted) + _half_pixel(axis)


def _pytorch_half_pixel(axis: Axis) -> Numbers:
    return np.full(axis.after, -0.5) if axis.scale * axis.before == 1 else _half_pixel(axis)


def _align_corners(axis: Axis) -> Numbers:
    wanted = axis.scale * axis.before
    return np.zeros(axis.after) if wanted == 1 else np.arange(axis.after) * (axis.before - 1) / (wanted - 1)


def _asymmetric(axis: Axis) -> Numbers:
    return np.arange(axis.after) / axis.scale


def _crop_and_resize(axis: Axis) -> Numbers:
    (start, end), wanted, last = axis.region, axis.scale * axis.before, axis.before - 1
    if wanted == 1:
        return np.full(axis.after, (start + end) / 2 * last)
    return start * last + np.arange(axis.after) * (end - start) * last / (wanted - 1)


# Where in the original the elements of the result stand: ONNX's coordinate_transformation_mode.
COORDINATES: Mapping[str, Callable[[Axis], Numbers]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_crop_and_resize": _crop_and_resize,
}

ROUNDINGS: Mapping[str, Callable[[Numbers], Numbers]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _linear(distance: Numbers) -> Numbers:
    weights: Numbers = np.maximum(1 - np.abs(distance), 0)
    return weights


def _cubic(distance: Numbers, a: float) -> Numbers:
    """Keys' kernel, which reaches two elements far (doi:10.1109/TASSP.1981.1163711)."""
    x = np.abs(distance)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _places(site: Site, axis: Axis) -> Numbers:
    """The places of the result's elements in the original."""
    return COORDINATES[site.attribute("coordinate_transformation_mode", "half_pixel")](axis)


def plan(site: Site, axis: Axis) -> tuple[Any, Any]:
    """The places (after,) or weights (after, before) that resize an axis; and which results lie outside."""
    where = _places(site, axis)
    cropped = site.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
    outside = ((where < 0) | (where > axis.before - 1)) & cropped
    nearest = site.attribute("mode", "nearest") == "nearest"
    return nearest_places(site, axis) if nearest else _weights(site, axis), outside


def nearest_places(site: Site, axis: Axis) -> Numbers:
    """The element of the original that stands nearest to each of the result."""
    rounded = ROUNDINGS[site.attribute("nearest_mode", "round_prefer_floor")](_places(site, axis))
    return np.clip(rounded, 0, axis.before - 1).astype(np.int32)


def _weights(site: Site, axis: Axis) -> Numbers:
    """(after, before): how much of every element of the original is in each of the result."""
    cubic, a = site.attribute("mode") == "cubic", site.attribute("cubic_coeff_a", -0.75)
    stretch = min(axis.scale, 1.0) if site.attribute("antialias", 0) else 1.0
    reach = int(np.ceil((2 if cubic else 1) / stretch))
    where = _places(site, axis)
    taps = np.floor(where)[:, None] + np.arange(-reach, reach + 1)  # (after, taps)
    distance = (taps - where[:, None]) * stretch
    weights = _cubic(distance, a) if cubic else _linear(distance)
    if stretch != 1.0:
        weights = weights / weights.sum(1, keepdims=True)
    if site.attribute("exclude_outside", 0):
        weights = np.where((taps < 0) | (taps >= axis.before), 0.0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    matrix = np.zeros((axis.after, axis.before))
    rows = np.broadcast_to(np.arange(axis.after)[:, None], taps.shape)
    np.add.at(
        matrix, (rows, np.clip(taps, 0, axis.before - 1).astype(np.int64)), weights
    )  # edges are repeated
    return matrix
