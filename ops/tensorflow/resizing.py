"""Resize: every axis by the weights of an interpolation, or by TensorFlow's kernels where they do the same"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.geometry.interpolation import AxisPlan, axis_plans, check_attributes, choice, resized_axes
from d5ray.ops.tensorflow.layout import ImageLayout, current_layout
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, known

Numbers = np.ndarray[Any, Any]


def _resize(context: NodeContext) -> Kernel:
    check_attributes(context)
    layout = current_layout()

    def call(
        x: Tensor, region: Tensor | None = None, scales: Tensor | None = None, wanted: Tensor | None = None
    ) -> Tensor:
        given = [_numbers(context, index, each) for index, each in ((1, region), (2, scales), (3, wanted))]
        shape, known_numbers = (
            _needed_shape(context, x, given[1]),
            [each for each in given if each is not None],
        )
        if shape is None or len(known_numbers) < len(given):
            return _when_it_runs(context, x, region, scales, wanted)
        plans = _plans(context, shape, *known_numbers)
        quick = _by_kernel(context, layout, x, plans)
        if quick is not None:
            return quick
        y, value = _computable(context, x)
        for plan in plans:
            y = _resized(
                y, plan.axis, plan.indices[:, 0] if plan.selects else plan.matrix, plan.outside, value
            )
        return _as_given(y, x.dtype)

    return call


def _computable(context: NodeContext, x: Tensor) -> tuple[Tensor, Tensor]:
    """x in a type that weights can be multiplied with, and the extrapolation value in this type."""
    y = x if choice(context, "mode") == "nearest" or x.dtype.is_floating else tf.cast(x, tf.float64)
    return y, tf.cast(context.attribute("extrapolation_value", 0.0), y.dtype)


def _as_given(y: Tensor, dtype: Any) -> Tensor:
    """The result in the type of the input, integers rounded."""
    return y if y.dtype == dtype else tf.saturate_cast(tf.round(y), dtype)


def _numbers(context: NodeContext, index: int, given: Tensor | None) -> Numbers | None:
    """The numbers of this input: nothing if it is left out, None if only the running graph knows."""
    if given is None or (given.shape.rank == 1 and given.shape[0] == 0):
        return np.zeros(0)
    value = known(context, index, given)
    return None if value is None else np.reshape(value, -1).astype(np.float64)


def _needed_shape(context: NodeContext, x: Tensor, scales: Numbers | None) -> list[int] | None:
    """The shape, in which 1 stands for an open size that is scaled by 1; None where another size is open."""
    shape: list[int | None] = x.shape.as_list()
    cropped = context.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
    for place, axis in enumerate(resized_axes(context, len(shape))):
        if shape[axis] is None:
            if cropped or scales is None or place >= len(scales) or scales[place] != 1.0:
                return None
            shape[axis] = 1
    return [1 if size is None else size for size in shape]


def _plans(context: NodeContext, shape: Sequence[int], *numbers: Numbers) -> list[AxisPlan]:
    """The axes that change. numbers: of the region, the scales and the sizes; none where it is left out."""
    region, scales, wanted = ([*map(float, each)] or None for each in numbers)
    return axis_plans(context, shape, region, scales, wanted and [*map(int, wanted)])


def _when_it_runs(
    context: NodeContext, x: Tensor, region: Tensor | None, scales: Tensor | None, wanted: Tensor | None
) -> Tensor:
    """Resizing by sizes or scales out of the graph: NumPy makes the matrices when it runs."""
    nothing = tf.zeros([0], tf.float64)
    given = [nothing if each is None else tf.cast(each, tf.float64) for each in (region, scales, wanted)]
    selects, (y, value) = choice(context, "mode") == "nearest", _computable(context, x)
    kinds = (tf.int64 if selects else tf.float64, tf.bool, tf.bool)
    for axis in resized_axes(context, x.shape.rank):

        def planned(shape: Numbers, *numbers: Numbers, axis: int = axis) -> tuple[Numbers, Numbers, bool]:
            for plan in _plans(context, [int(size) for size in shape], *numbers):
                if plan.axis == axis:
                    beyond = np.zeros(plan.outputs, bool) if plan.outside is None else plan.outside
                    return plan.indices[:, 0] if selects else plan.matrix, beyond, True
            return np.zeros(0, np.int64) if selects else np.zeros((0, shape[axis])), np.zeros(0, bool), False

        taken, outside, changes = tf.numpy_function(planned, [tf.shape(x), *given], kinds, stateful=False)
        taken.set_shape([None] if selects else [None, x.shape[axis]])
        outside.set_shape([None])
        y = tf.cond(changes, partial(_resized, y, axis, taken, outside, value), partial(tf.identity, y))
    return _as_given(y, x.dtype)


def _resized(y: Tensor, axis: int, taken: Any, outside: Any, value: Tensor) -> Tensor:
    """One axis of y: elements, or weights by them, and `value` where a region reaches beyond the original."""
    y = tf.gather(y, taken, axis=axis) if len(taken.shape) == 1 else _multiplied(y, axis, taken)
    if outside is None:
        return y
    shape = [-1 if each == axis else 1 for each in range(y.shape.rank)]
    return tf.where(tf.reshape(outside, shape), value, y)


def _multiplied(x: Tensor, axis: int, weights: Any) -> Tensor:
    """The matrix times x along an axis."""
    matrix, last = tf.cast(weights, x.dtype), x.shape.rank - 1
    if axis == last - 1:
        return tf.matmul(matrix, x)
    order = [each for each in range(last + 1) if each != axis] + [axis]
    moved = x if axis == last else tf.transpose(x, order)
    y = tf.tensordot(moved, matrix, [[last], [1]])
    return y if axis == last else tf.transpose(y, [*range(axis), last, *range(axis, last)])


def _by_kernel(context: NodeContext, layout: ImageLayout, x: Tensor, plans: list[AxisPlan]) -> Tensor | None:
    """The result by TensorFlow's own kernel for images, None where it has none that does the same."""
    if x.shape.rank != 4 or layout.first or [plan.axis for plan in plans] != [2, 3]:
        return None
    if any(plan.outputs != plan.scale * plan.size for plan in plans):
        return None
    way, mode = choice(context, "coordinate_transformation_mode"), choice(context, "mode")
    size = [plan.outputs for plan in plans]
    if mode == "linear" and x.dtype == tf.float32 and not context.attribute("antialias", 0):
        if way not in ("half_pixel", "align_corners", "asymmetric") or context.attribute(
            "exclude_outside", 0
        ):
            return None
        images = tf.raw_ops.ResizeBilinear(
            images=layout.enter(x),
            size=size,
            align_corners=way == "align_corners",
            half_pixel_centers=way == "half_pixel",
        )
        return layout.leave(images)
    if mode == "nearest" and x.dtype in (tf.float16, tf.float32, tf.float64):
        for half in (True, False):
            if way != "tf_crop_and_resize" and all(_same_nearest(plan, half) for plan in plans):
                images = tf.raw_ops.ResizeNearestNeighbor(
                    images=layout.enter(x), size=size, half_pixel_centers=half
                )
                return layout.leave(images)
    return None


def _same_nearest(plan: AxisPlan, half: bool) -> bool:
    """True if TensorFlow's kernel takes the elements that ONNX asks for, with half pixels or without."""
    ratio = np.float32(plan.size) / np.float32(plan.outputs)  # as the kernel computes it
    own = np.floor((np.arange(plan.outputs, dtype=np.float32) + np.float32(0.5 if half else 0.0)) * ratio)
    return bool(np.array_equal(np.clip(own, 0, plan.size - 1), plan.indices[:, 0]))


FACTORIES: Mapping[str, KernelFactory] = {"Resize": _resize}
