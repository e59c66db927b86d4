"""Reductions, ArgMax and ArgMin, cumulative sums and products"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, axis_of, known, root, sizes

Reduction = Callable[..., Tensor]  # of (x, axes, keepdims)


def _reduced(reduction: Reduction) -> KernelFactory:
    """A reduction over the axes of the second input, over all if it names none, unless that means none."""

    def build(context: NodeContext) -> Kernel:
        keep = bool(context.attribute("keepdims", 1))
        noop = bool(context.attribute("noop_with_empty_axes", 0))
        attribute = context.attribute("axes")  # of the operator sets in which it was one

        def call(x: Tensor, given: Tensor | None = None) -> Tensor:
            axes = known(context, 1, given) if attribute is None else np.asarray(attribute)
            if axes is None and given is not None and not noop:
                return reduction(x, _all_where_empty(x, given), keep)
            if axes is None and given is not None:
                return reduction(x, given, keep)
            if axes is None or np.size(axes) == 0:
                return reduction(x, [] if noop else None, keep)
            return reduction(x, [int(axis) for axis in np.reshape(axes, -1)], keep)

        return call

    return build


def _all_where_empty(x: Tensor, axes: Tensor) -> Tensor:
    """Axes whose number is known only when the graph runs."""
    if axes.shape.rank == 1 and axes.shape[0] is not None and axes.shape[0] > 0:
        return axes
    every = tf.range(tf.cast(tf.rank(x), axes.dtype))
    return tf.cond(tf.size(axes) > 0, lambda: axes, lambda: every)


def _greatest(x: Tensor, axes: Any, keep: bool) -> Tensor:
    return (tf.reduce_any if x.dtype == tf.bool else tf.reduce_max)(x, axes, keep)


def _least(x: Tensor, axes: Any, keep: bool) -> Tensor:
    return (tf.reduce_all if x.dtype == tf.bool else tf.reduce_min)(x, axes, keep)


def _magnitudes(x: Tensor) -> Tensor:
    return x if x.dtype.is_unsigned else tf.abs(x)


def _norm(x: Tensor, axes: Any, keep: bool) -> Tensor:
    """√Σx², with a gradient of 0 where it is 0."""
    if x.dtype.is_integer:
        return tf.cast(tf.sqrt(tf.reduce_sum(tf.square(tf.cast(x, tf.float64)), axes, keep)), x.dtype)
    return root(tf.reduce_sum(tf.square(x), axes, keep))


def _floating(function: Reduction) -> Reduction:
    """A reduction that computes integers by way of float64, as NumPy does."""

    def call(x: Tensor, axes: Any, keep: bool) -> Tensor:
        if x.dtype.is_integer:
            return tf.cast(function(tf.cast(x, tf.float64), axes, keep), x.dtype)
        return function(x, axes, keep)

    return call


def _place(find: Callable[..., Tensor]) -> KernelFactory:
    """The position of the greatest or least along an axis, the first or the last of equals."""

    def build(context: NodeContext) -> Kernel:
        keep = bool(context.attribute("keepdims", 1))
        last = bool(context.attribute("select_last_index", 0))

        def call(x: Tensor) -> Tensor:
            axis = axis_of(context, x)
            place = find(tf.reverse(x, [axis]), axis) if last else find(x, axis)
            if last:
                place = tf.cast(sizes(x)[axis], tf.int64) - 1 - place
            return tf.expand_dims(place, axis) if keep else place

        return call

    return build


def _cumulative(function: Callable[..., Tensor]) -> KernelFactory:
    def build(context: NodeContext) -> Kernel:
        exclusive, backwards = bool(context.attribute("exclusive", 0)), bool(context.attribute("reverse", 0))

        def call(x: Tensor, given: Tensor) -> Tensor:
            axis = known(context, 1, given)
            axis = tf.reshape(given, []) if axis is None else int(np.reshape(axis, -1)[0])
            return function(x, axis, exclusive, backwards)

        return call

    return build


FACTORIES: Mapping[str, KernelFactory] = {
    "ArgMax": _place(tf.argmax),
    "ArgMin": _place(tf.argmin),
    "CumProd": _cumulative(tf.math.cumprod),
    "CumSum": _cumulative(tf.cumsum),
    "ReduceL1": _reduced(lambda x, axes, keep: tf.reduce_sum(_magnitudes(x), axes, keep)),
    "ReduceL2": _reduced(_norm),
    "ReduceLogSum": _reduced(_floating(lambda x, axes, keep: tf.math.log(tf.reduce_sum(x, axes, keep)))),
    "ReduceLogSumExp": _reduced(_floating(tf.reduce_logsumexp)),
    "ReduceMax": _reduced(_greatest),
    "ReduceMean": _reduced(tf.reduce_mean),
    "ReduceMin": _reduced(_least),
    "ReduceProd": _reduced(tf.reduce_prod),
    "ReduceSum": _reduced(tf.reduce_sum),
    "ReduceSumSquare": _reduced(lambda x, axes, keep: tf.reduce_sum(tf.square(x), axes, keep)),
}
