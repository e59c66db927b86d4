"""Interpolation of a Resize: for each element along an axis its neighbours and their weights"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError, nearest
from d5ray.operators.nodes.node_context import NodeContext

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]


@final
@dataclass(frozen=True)
class AxisPlan:
    """The resizing of one axis: output[o] = Σ_n weights[o, n] · input[indices[o, n]].

    size and outputs: the axis's elements before and after. outside: the elements that get the extrapolation
    value instead, None where there are none.
    """

    axis: int
    size: int
    outputs: int
    scale: float
    indices: Integers  # (outputs, neighbours), inside the input
    weights: Floats  # (outputs, neighbours)
    outside: np.ndarray[Any, np.dtype[np.bool_]] | None

    @property
    def selects(self) -> bool:
        """True if every output is one element of the input."""
        return bool(self.indices.shape[1] == 1)

    @property
    def matrix(self) -> Floats:
        """The weights as a matrix (outputs, size), with zero rows for what lies outside."""
        result = np.zeros((self.outputs, self.size))
        weights = self.weights if self.outside is None else np.where(self.outside[:, None], 0, self.weights)
        np.add.at(result, (np.arange(self.outputs)[:, None], self.indices), weights)
        return result


# The values of a Resize's attributes, the default first.
CHOICES: dict[str, tuple[str, ...]] = {
    "mode": ("nearest", "linear", "cubic"),
    "coordinate_transformation_mode": (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
        "tf_crop_and_resize",
    ),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
}  # fmt: skip


def choice(context: NodeContext, name: str) -> str:
    """The value of one of these attributes. Raises `ConfigurationError` for one that ONNX does not have."""
    found = str(context.attribute(name, CHOICES[name][0]))
    if found not in CHOICES[name]:
        *most, last = CHOICES[name]
        hint = nearest(found, CHOICES[name])
        raise ConfigurationError(
            f"the node {context.node} has {name}={found!r}: "
            + (hint if hint.startswith("did") else f"give one of {', '.join(most)} or {last}")
        )
    return found


def check_attributes(context: NodeContext) -> None:
    """Raise `ConfigurationError` where an attribute of a Resize has a value that ONNX does not have."""
    for name in CHOICES:
        choice(context, name)


def resized_axes(context: NodeContext, rank: int) -> list[int]:
    """The axes that scales and sizes are given for: those that the node names, or all."""
    return [int(axis) % rank for axis in context.attribute("axes") or range(rank)]


def axis_plans(
    context: NodeContext,
    shape: Sequence[int],
    regions: Sequence[float] | None,
    scales: Sequence[float] | None,
    sizes: Sequence[int] | None,
) -> list[AxisPlan]:
    """A plan for every axis of an input of this shape that changes (ONNX: Resize).

    regions (starts, then ends), scales and sizes are the inputs 1 to 3, along the attribute `axes` or all.
    """
    check_attributes(context)
    axes = resized_axes(context, len(shape))
    outputs, factors = _sizes(context, [shape[axis] for axis in axes], scales, sizes)
    plans = []
    for place, axis in enumerate(axes):
        region = None
        if context.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
            if regions is None or len(regions) != 2 * len(axes):
                raise ConfigurationError(
                    f"the node {context.node} crops: its input roi must hold {2 * len(axes)} numbers"
                )
            region = float(regions[place]), float(regions[len(axes) + place])
        if outputs[place] == shape[axis] and factors[place] == 1 and region in (None, (0.0, 1.0)):
            continue
        plans.append(_plan(context, axis, shape[axis], outputs[place], factors[place], region))
    return plans


def _sizes(
    context: NodeContext, given: Sequence[int], scales: Sequence[float] | None, sizes: Sequence[int] | None
) -> tuple[list[int], list[float]]:
    """The outputs' sizes and the scales, along the axes that are resized."""
    if (scales is None) == (sizes is None):
        raise ConfigurationError(
            f"the node {context.node} needs one of its inputs scales and sizes, and not both"
        )
    if sizes is None:
        assert scales is not None
        _check_length(context, "scales", scales, given)
        return [math.floor(size * scale) for size, scale in zip(given, scales, strict=True)], [
            *map(float, scales)
        ]
    _check_length(context, "sizes", sizes, given)
    factors = [int(new) / old for new, old in zip(sizes, given, strict=True)]
    policy = choice(context, "keep_aspect_ratio_policy")
    if policy == "stretch":
        return [*map(int, sizes)], factors
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [math.floor(factor * size + 0.5) for size in given], [factor] * len(given)


def _check_length(context: NodeContext, name: str, found: Sequence[Any], axes: Sequence[int]) -> None:
    if len(found) != len(axes):
        raise ConfigurationError(
            f"the node {context.node} has {len(found)} {name} for {len(axes)} axes: give one for each"
        )


def _plan(
    context: NodeContext, axis: int, size: int, outputs: int, scale: float, region: tuple[float, float] | None
) -> AxisPlan:
    transformation = _TRANSFORMATIONS[choice(context, "coordinate_transformation_mode")]
    # The position of each output in the input, 0 at its first element.
    where = transformation(np.arange(outputs, dtype=np.float64), size, outputs, scale, region)
    beyond = np.zeros(outputs, bool) if region is None else (where < 0) | (where > size - 1)
    outside = beyond if beyond.any() else None
    mode = choice(context, "mode")
    if mode == "nearest":
        index = _ROUNDINGS[choice(context, "nearest_mode")](where).astype(np.int64)[:, None]
        ones = np.ones(index.shape)
        return AxisPlan(axis, size, outputs, scale, np.clip(index, 0, size - 1), ones, outside)
    stretch = min(scale, 1.0) if context.attribute("antialias", 0) else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / stretch)
    indices = np.floor(where).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
    kernel = _triangle if mode == "linear" else _cubic(context.attribute("cubic_coeff_a", -0.75))
    weights = kernel((indices - where[:, None]) * stretch)
    if context.attribute("exclude_outside", 0):
        weights = np.where((indices < 0) | (indices >= size), 0, weights)
    if context.attribute("exclude_outside", 0) or stretch != 1:
        total = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(total == 0, 1, total)
    return AxisPlan(axis, size, outputs, scale, np.clip(indices, 0, size - 1), weights, outside)


def _half_pixel(x: Floats, size: int, outputs: int, scale: float, region: Any) -> Floats:
    return (x + 0.5) / scale - 0.5


def _half_pixel_symmetric(x: Floats, size: int, outputs: int, scale: float, region: Any) -> Floats:
    return size / 2 * (1 - outputs / (scale * size)) + (x + 0.5) / scale - 0.5


def _pytorch_half_pixel(x: Floats, size: int, outputs: int, scale: float, region: Any) -> Floats:
    return np.zeros_like(x) if outputs == 1 else _half_pixel(x, size, outputs, scale, region)


def _align_corners(x: Floats, size: int, outputs: int, scale: float, region: Any) -> Floats:
    """The output's length is what the scale makes of it, whole or not, as in ONNX's cases."""
    return np.zeros_like(x) if scale * size == 1 else x * (size - 1) / (scale * size - 1)


def _asymmetric(x: Floats, size: int, outputs: int, scale: float, region: Any) -> Floats:
    return x / scale


def _tf_crop_and_resize(x: Floats, size: int, outputs: int, scale: float, region: Any) -> Floats:
    start, end = region
    if outputs == 1:
        return np.full_like(x, 0.5 * (start + end) * (size - 1))
    found: Floats = start * (size - 1) + x * (end - start) * (size - 1) / (outputs - 1)
    return found


_TRANSFORMATIONS: dict[str, Callable[..., Floats]] = {
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_crop_and_resize": _tf_crop_and_resize,
}


_ROUNDINGS: dict[str, Callable[[Floats], Floats]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _triangle(distance: Floats) -> Floats:
    return np.clip(1 - abs(distance), 0, 1)


def _cubic(a: float) -> Callable[[Floats], Floats]:
    """Keys' cubic convolution (1981, "Cubic convolution interpolation for digital image processing")."""

    def weights(distance: Floats) -> Floats:
        x = abs(distance)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        found: Floats = np.where(x <= 1, near, np.where(x < 2, far, 0))
        return found

    return weights
