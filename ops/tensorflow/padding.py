"""Pad: with a constant, the edge, the mirror image, or the other end"""

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Size, Tensor, from_front, integers, known, rank, sizes


def pad(context: NodeContext) -> Kernel:
    """ONNX's Pad in its four modes. Raises ConfigurationError for any other mode."""
    mode = context.attribute("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ConfigurationError(
            f"the node {context.node} has mode={mode!r}: give constant, reflect, edge or wrap"
        )

    def call(x: Tensor, given: Tensor, value: Tensor | None = None, axes: Tensor | None = None) -> Tensor:
        pads = _pads(context, x, given, axes)
        if mode == "constant":
            if value is None or 2 in context.constants:
                return _constant_pad(
                    x, pads, tf.zeros((), x.dtype) if value is None else tf.reshape(value, [])
                )
            inside = _constant_pad(tf.ones_like(x, tf.bool), pads, tf.constant(False))
            zero = tf.zeros((), x.dtype)  # tf.pad has no gradient with respect to the value
            return tf.where(inside, _constant_pad(x, pads, zero), tf.reshape(value, []))
        for axis, (before, after) in enumerate(pads):
            if not (isinstance(before, int) and isinstance(after, int) and before == after == 0):
                x = tf.gather(x, _sources(sizes(x)[axis], before, after, mode), axis=axis)
        return x

    return call


def _pads(context: NodeContext, x: Tensor, given: Tensor, axes: Tensor | None) -> list[tuple[Size, Size]]:
    """Before and after every axis; negative ones take away."""
    count = rank(context, x)
    chosen = list(range(count)) if axes is None else from_front(integers(context, 3, axes), count)
    value = known(context, 1, given)
    each = tf.cast(given, tf.int32) if value is None else [int(size) for size in np.reshape(value, -1)]
    pads: list[tuple[Size, Size]] = [(0, 0)] * count
    for place, axis in enumerate(chosen):
        pads[axis] = (each[place], each[place + len(chosen)])
    return pads


def _constant_pad(x: Tensor, pads: list[tuple[Size, Size]], value: Tensor) -> Tensor:
    if all(isinstance(size, int) and size >= 0 for pair in pads for size in pair):
        return tf.pad(x, pads, constant_values=value)
    added = [[tf.maximum(size, 0) for size in pair] for pair in pads]
    begin = [tf.maximum(-before, 0) for before, _ in pads]
    size = [
        length - start - tf.maximum(-after, 0)
        for length, start, (_, after) in zip(sizes(x), begin, pads, strict=True)
    ]
    return tf.pad(tf.slice(x, begin, size), added, constant_values=value)


def _sources(size: Size, before: Size, after: Size, mode: str) -> Tensor:
    """The elements that come along an axis: the last, the mirrored, those of the other end.

    What negative pads cut off is not mirrored.
    """
    first = tf.maximum(-before, 0)
    size = size - first - tf.maximum(-after, 0)
    places = tf.range(-tf.maximum(before, 0), size + tf.maximum(after, 0))
    if mode == "edge":
        return first + tf.clip_by_value(places, 0, size - 1)
    if mode == "wrap":
        return first + places % size
    period = tf.maximum(2 * (size - 1), 1)
    return first + tf.minimum(places % period, period - places % period)
