"""Operators that choose elements by index: Gather, Scatter, TopK, OneHot and their family"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Size, Tensor, axis_of, known, outputs, plain, rank, sizes


def _from_front(indices: Tensor, size: Size) -> Tensor:
    """Indices, of which negative ones count from the end, counted from the front."""
    if indices.dtype.is_unsigned:
        return indices
    return tf.where(indices < 0, indices + tf.cast(size, indices.dtype), indices)


def _compress(context: NodeContext) -> Kernel:
    """The slices for which the condition holds; without an axis, the elements of the flattened tensor."""
    flat = context.attribute("axis") is None

    def call(x: Tensor, condition: Tensor) -> Tensor:
        value = known(context, 1, condition)
        chosen = tf.where(condition)[:, 0] if value is None else np.flatnonzero(value)
        return (
            tf.gather(tf.reshape(x, [-1]), chosen) if flat else tf.gather(x, chosen, axis=axis_of(context, x))
        )

    return call


def _gather(context: NodeContext) -> Kernel:
    constant = context.constants.get(1)
    none_negative = constant is not None and bool(np.all(constant >= 0))

    def call(x: Tensor, indices: Tensor) -> Tensor:
        axis = axis_of(context, x)
        return tf.gather(x, indices if none_negative else _from_front(indices, sizes(x)[axis]), axis=axis)

    return call


def _gather_elements(context: NodeContext) -> Kernel:
    def call(x: Tensor, indices: Tensor) -> Tensor:
        return tf.gather(tf.reshape(x, [-1]), _flat_places(x, indices, axis_of(context, x)))

    return call


def _flat_places(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """The places in the flattened x of the elements that `indices` choose on this axis."""
    shape, own = sizes(x), sizes(indices)
    place = tf.zeros([], tf.int64)
    for each, size in enumerate(shape):
        along = (
            tf.cast(_from_front(indices, size), tf.int64)
            if each == axis
            else _along(own[each], each, len(shape))
        )
        place = place * tf.cast(size, tf.int64) + along
    return place


def _along(size: Size, axis: int, count: int) -> Tensor:
    """0, 1, ... along this axis of `count`."""
    return tf.reshape(tf.range(tf.cast(size, tf.int64)), [-1 if each == axis else 1 for each in range(count)])


def _gather_nd(context: NodeContext) -> Kernel:
    batch = context.attribute("batch_dims", 0)

    def call(x: Tensor, indices: Tensor) -> Tensor:
        return tf.gather_nd(x, _nd_from_front(x, indices, batch), batch_dims=batch)

    return call


def _nd_from_front(x: Tensor, indices: Tensor, batch: int = 0) -> Tensor:
    """Rows of indices, of which negative ones count from the end, counted from the front."""
    bounds = tf.shape(x, indices.dtype)[batch : batch + sizes(indices)[-1]]
    return tf.where(indices < 0, indices + bounds, indices)


def _nonzero(x: Tensor) -> Tensor:
    return tf.transpose(tf.where(x if x.dtype == tf.bool else tf.not_equal(x, tf.zeros((), x.dtype))))


def _one_hot(context: NodeContext) -> Kernel:
    def call(indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
        count = known(context, 1, depth)
        classes = tf.cast(tf.reshape(depth, []), tf.int32) if count is None else int(np.reshape(count, -1)[0])
        places = _from_front(tf.cast(indices, tf.int64), classes)
        axis = axis_of(context, indices, default=-1) + (1 if context.attribute("axis", -1) < 0 else 0)
        on = tf.one_hot(places, classes, on_value=True, off_value=False, axis=axis, dtype=tf.bool)
        return tf.where(on, values[1], values[0])  # not tf.one_hot's own values, which have no gradient

    return call


def _scatter(context: NodeContext, reductions: Mapping[str, Callable[..., Tensor]]) -> Callable[..., Tensor]:
    name = context.attribute("reduction", "none")
    if name not in reductions:
        raise ConfigurationError(
            f"the node {context.node} has reduction={name!r}: give one of {', '.join(reductions)}"
        )
    return reductions[name]


def _multiplied(x: Tensor, rows: Tensor, updates: Tensor) -> Tensor:
    """x with the products of the updates of every element multiplied into it."""
    shape, depth = sizes(x), sizes(rows)[-1]
    flat = tf.zeros([], rows.dtype)
    for axis in range(depth):
        flat = flat * tf.cast(shape[axis], rows.dtype) + rows[..., axis]
    count = tf.reduce_prod([tf.cast(size, tf.int32) for size in shape[:depth]]) if depth else 1
    inner = shape[depth:]
    factors = tf.math.unsorted_segment_prod(tf.reshape(updates, [-1, *inner]), tf.reshape(flat, [-1]), count)
    return x * tf.reshape(factors, shape)


SCATTERS: Mapping[str, Callable[..., Tensor]] = {
    "none": tf.tensor_scatter_nd_update,
    "add": tf.tensor_scatter_nd_add,
    "mul": _multiplied,
    "max": tf.tensor_scatter_nd_max,
    "min": tf.tensor_scatter_nd_min,
}


def _scatter_elements(context: NodeContext) -> Kernel:
    scatter = _scatter(context, SCATTERS)

    def call(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        place = tf.broadcast_to(_flat_places(x, indices, axis_of(context, x)), tf.shape(indices))
        rows = tf.reshape(place, [-1, 1])
        return tf.reshape(scatter(tf.reshape(x, [-1]), rows, tf.reshape(updates, [-1])), sizes(x))

    return call


def _scatter_nd(context: NodeContext) -> Kernel:
    scatter = _scatter(context, SCATTERS)
    return lambda x, indices, updates: scatter(x, _nd_from_front(x, indices), updates)


def _top_k(context: NodeContext) -> Kernel:
    """The greatest, or the least, along an axis, and where they stand; of equals the first comes first."""
    largest, in_order = bool(context.attribute("largest", 1)), bool(context.attribute("sorted", 1))

    def call(x: Tensor, given: Tensor) -> Any:
        count = known(context, 1, given)
        count = tf.cast(tf.reshape(given, []), tf.int32) if count is None else int(np.reshape(count, -1)[0])
        axis, last = axis_of(context, x, default=-1), rank(context, x) - 1
        swap = [last if each == axis else axis if each == last else each for each in range(last + 1)]
        x = x if axis == last else tf.transpose(x, swap)
        values, places = tf.math.top_k(x if largest else _opposite(x), count, in_order)
        found = [values if largest else _opposite(values), tf.cast(places, tf.int64)]
        return outputs(context, found if axis == last else [tf.transpose(each, swap) for each in found])

    return call


def _opposite(x: Tensor) -> Tensor:
    """The values in opposite order: −x, and of integers ~x, which none of them overflows."""
    return tf.bitwise.invert(x) if x.dtype.is_integer else -x


FACTORIES: Mapping[str, KernelFactory] = {
    "Compress": _compress,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "NonZero": plain(_nonzero),
    "OneHot": _one_hot,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TopK": _top_k,
}
