"""Resize, by PyTorch's interpolate where that is the same, and by a matrix for each axis otherwise"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.kernel_factory import Builder, Built
from d5ray.operators.nodes.node_context import Site
from d5ray.ops.torch.builders import Value, with_values
from d5ray.ops.torch.interpolation import Along, Interpolation
from d5ray.ops.torch.types import is_floating, known_sizes

_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}  # PyTorch's names, by the number of axes


@with_values(1, 2, 3)
def resize(site: Site, region: Value, scales: Value, sizes: Value) -> Built:
    """Resize, with weights computed once if the sizes of the image are known, else for each new size."""
    interpolation = Interpolation.of(site)

    def make(shape: tuple[int, ...]) -> Built:
        axes = interpolation.along(shape, region, scales, sizes)
        kernel, matrices = _by_interpolate(interpolation, axes, shape), _by_matrices(interpolation, axes)
        if kernel is None or is_floating(site):
            return kernel or matrices

        def of_any(x: Tensor) -> Any:
            return kernel(x) if x.is_floating_point() else matrices(x)

        return of_any

    shape = known_sizes(site)
    if shape is not None:
        made = make(shape)

        def resize_of_known(x: Tensor, *others: Tensor | None) -> Any:
            return made(x)

        return resize_of_known
    kept = lru_cache(maxsize=16)(make)

    def resize(x: Tensor, *others: Tensor | None) -> Any:
        return kept(tuple(x.shape))(x)

    return resize


def _by_interpolate(how: Interpolation, axes: Sequence[Along], shape: tuple[int, ...]) -> Built | None:
    """PyTorch's own function of images of real numbers, None where ONNX asks for something else."""
    if len(shape) not in _LINEAR or not axes or min(each.axis for each in axes) < 2:
        return None
    if not all(each.whole for each in axes) or how.antialias or how.coordinates == "tf_crop_and_resize":
        return None
    size = list(shape[2:])
    for each in axes:
        size[each.axis - 2] = each.output
    if how.mode == "nearest":
        if not all(_doubled(how, each) for each in axes):
            return None

        def nearest(x: Tensor) -> Tensor:
            return F.interpolate(x, size, mode="nearest")

        return nearest
    pixels_are_areas = how.coordinates == "half_pixel" or (
        how.coordinates in ("pytorch_half_pixel", "half_pixel_symmetric") and min(size) > 1
    )
    if how.coordinates != "align_corners" and not pixels_are_areas:
        return None
    cubic = how.mode == "cubic"
    if cubic and (len(shape) != 4 or how.cubic != -0.75 or how.exclude_outside):
        return None
    mode, corners = "bicubic" if cubic else _LINEAR[len(shape)], how.coordinates == "align_corners"

    def interpolate(x: Tensor) -> Tensor:
        return F.interpolate(x, size, mode=mode, align_corners=corners)

    return interpolate


def _doubled(how: Interpolation, along: Along) -> bool:
    """True if each element comes 1, 2, 4, 8 … times, where PyTorch's float32 finds the same ones."""
    times = along.output // along.input
    expected = np.arange(along.output) // max(times, 1)
    return times.bit_count() == 1 and np.array_equal(how.nearest_places(along), expected)


def _by_matrices(how: Interpolation, axes: Sequence[Along]) -> Built:
    """Axis by axis: whole elements by their places, weighted ones by a matrix (output, input)."""
    by_place = how.mode == "nearest"
    tables = [torch.from_numpy(how.nearest_places(each) if by_place else how.matrix(each)) for each in axes]
    beyond = [_mask(how, each) for each in axes]

    def resize_by_matrices(x: Tensor) -> Tensor:
        kind = x.dtype
        exact = by_place or kind in (torch.float32, torch.float64)
        y = x if exact else x.float() if kind.is_floating_point else x.double()
        for along, table, outside in zip(axes, tables, beyond, strict=True):
            if by_place:
                y = torch.index_select(y, along.axis, table.to(y.device))
            else:
                y = F.linear(y.movedim(along.axis, -1), table.to(y)).movedim(-1, along.axis)
            if outside is not None:
                mask = outside.reshape(-1, *(1,) * (x.dim() - along.axis - 1))
                y = torch.masked_fill(y, mask.to(y.device), how.extrapolation)
        if exact:
            return y
        return y.to(kind) if kind.is_floating_point else _rounded(y, kind)

    return resize_by_matrices


def _mask(how: Interpolation, along: Along) -> Tensor | None:
    """The outputs that take the extrapolation value, None if there are none."""
    outside = how.outside(along)
    return torch.from_numpy(outside) if outside.any() else None


def _rounded(y: Tensor, kind: torch.dtype) -> Tensor:
    """Integers: the nearest, within what the type holds."""
    if kind == torch.bool:
        return torch.round(y).to(kind)
    limits = torch.iinfo(kind)
    return torch.clamp(torch.round(y), limits.min, limits.max).to(kind)


BUILDERS: Mapping[str, Builder] = {"Resize": resize}
