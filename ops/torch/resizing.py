"""Resize, by PyTorch's interpolate where that is the same, and by a matrix for each axis otherwise"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.geometry.interpolation import AxisPlan, axis_plans, check_attributes, choice
from d5ray.ops.torch.builders import Value, with_values
from d5ray.ops.torch.types import is_floating, known_sizes
from d5ray.ops.torch.unsigned import to_signed, to_unsigned

_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}  # PyTorch's names, by the number of axes


@with_values(1, 2, 3)
def resize(context: NodeContext, region: Value, scales: Value, sizes: Value) -> Kernel:
    """Resize, with weights computed once if the sizes of the image are known, else for each new size."""
    check_attributes(context)

    def make(shape: tuple[int, ...]) -> Kernel:
        plans = axis_plans(context, shape, region or None, scales or None, sizes or None)
        kernel, matrices = _by_interpolate(context, plans, shape), _by_matrices(context, plans)
        if kernel is None or is_floating(context):
            return kernel or matrices

        def of_any(x: Tensor) -> Any:
            return kernel(x) if x.is_floating_point() else matrices(x)

        return of_any

    shape = known_sizes(context)
    if shape is not None:
        made = make(shape)

        def resize_of_known(x: Tensor, *others: Tensor | None) -> Any:
            return made(x)

        return resize_of_known
    kept = lru_cache(maxsize=16)(make)

    def resize(x: Tensor, *others: Tensor | None) -> Any:
        return kept(tuple(x.shape))(x)

    return resize


def _by_interpolate(context: NodeContext, plans: Sequence[AxisPlan], shape: tuple[int, ...]) -> Kernel | None:
    """PyTorch's own function of images of real numbers, None where ONNX asks for something else."""
    mode, coordinates = choice(context, "mode"), choice(context, "coordinate_transformation_mode")
    if len(shape) not in _LINEAR or not plans or min(each.axis for each in plans) < 2:
        return None
    whole = all(math.isclose(each.size * each.scale, each.outputs, rel_tol=1e-9) for each in plans)
    if not whole or context.attribute("antialias", 0) or coordinates == "tf_crop_and_resize":
        return None
    size = list(shape[2:])
    for each in plans:
        size[each.axis - 2] = each.outputs
    if mode == "nearest":
        if not all(map(_doubled, plans)):
            return None

        def nearest(x: Tensor) -> Tensor:
            return F.interpolate(x, size, mode="nearest")

        return nearest
    pixels_are_areas = coordinates == "half_pixel" or (
        coordinates in ("pytorch_half_pixel", "half_pixel_symmetric") and min(size) > 1
    )
    corners, cubic = coordinates == "align_corners", mode == "cubic"
    if not corners and not pixels_are_areas:
        return None
    own = context.attribute("cubic_coeff_a", -0.75) == -0.75 and not context.attribute("exclude_outside", 0)
    if cubic and (len(shape) != 4 or not own):
        return None
    name = "bicubic" if cubic else _LINEAR[len(shape)]

    def interpolate(x: Tensor) -> Tensor:
        return F.interpolate(x, size, mode=name, align_corners=corners)

    return interpolate


def _doubled(plan: AxisPlan) -> bool:
    """True if each element comes 1, 2, 4, 8 … times, where PyTorch's float32 finds the same ones."""
    times = plan.outputs // plan.size
    expected = np.arange(plan.outputs) // max(times, 1)
    return times.bit_count() == 1 and np.array_equal(plan.indices[:, 0], expected)


def _by_matrices(context: NodeContext, plans: Sequence[AxisPlan]) -> Kernel:
    """Axis by axis: whole elements by their indices, weighted ones by a matrix (outputs, size)."""
    selects = choice(context, "mode") == "nearest"
    extrapolation = context.attribute("extrapolation_value", 0.0)
    tables = [torch.from_numpy(each.indices[:, 0] if selects else each.matrix) for each in plans]
    beyond = [None if each.outside is None else torch.from_numpy(each.outside) for each in plans]

    def resize_by_matrices(x: Tensor) -> Tensor:
        kind = x.dtype
        exact = selects or kind in (torch.float32, torch.float64)
        y = to_signed(x) if exact else x.float() if kind.is_floating_point else x.double()
        for plan, table, outside in zip(plans, tables, beyond, strict=True):
            if selects:
                y = torch.index_select(y, plan.axis, table.to(y.device))
            else:
                y = F.linear(y.movedim(plan.axis, -1), table.to(y)).movedim(-1, plan.axis)
            if outside is not None:
                mask = outside.reshape(-1, *(1,) * (x.dim() - plan.axis - 1))
                y = torch.masked_fill(y, mask.to(y.device), extrapolation)
        if exact:
            return to_unsigned(y, kind)
        return y.to(kind) if kind.is_floating_point else _rounded(y, kind)

    return resize_by_matrices


def _rounded(y: Tensor, kind: torch.dtype) -> Tensor:
    """Integers: the nearest, within what the type holds."""
    if kind == torch.bool:
        return torch.round(y).to(kind)
    limits = torch.iinfo(kind)
    return torch.clamp(torch.round(y), limits.min, limits.max).to(kind)


FACTORIES: Mapping[str, KernelFactory] = {"Resize": resize}
