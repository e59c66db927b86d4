"""Operators that rearrange elements: Reshape, Transpose, Concat, Slice, Pad and their family"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.layout import kept_concat
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.padding import pad
from d5ray.ops.tensorflow.tensors import Size, Tensor, axis_of, from_front, integers, known, rank, sizes


def _concat(context: NodeContext) -> Kernel:
    context.required("axis")
    return lambda *given: kept_concat(given, axis_of(context, given[0]))


def _depth_to_space(context: NodeContext) -> Kernel:
    """DCR: the channels are (block, block, depth); CRD: (depth, block, block)."""
    block, first = context.required("blocksize"), context.attribute("mode", "DCR") == "DCR"

    def call(x: Tensor) -> Tensor:
        batch, channels, height, width = sizes(x)
        depth = channels // block**2
        parts = (
            [batch, block, block, depth, height, width]
            if first
            else [batch, depth, block, block, height, width]
        )
        moved = tf.transpose(tf.reshape(x, parts), [0, 3, 4, 1, 5, 2] if first else [0, 1, 4, 2, 5, 3])
        return tf.reshape(moved, [batch, depth, height * block, width * block])

    return call


def _space_to_depth(context: NodeContext) -> Kernel:
    block, first = context.required("blocksize"), context.attribute("mode", "DCR") == "DCR"

    def call(x: Tensor) -> Tensor:
        batch, channels, height, width = sizes(x)
        parts = tf.reshape(x, [batch, channels, height // block, block, width // block, block])
        moved = tf.transpose(parts, [0, 3, 5, 1, 2, 4] if first else [0, 1, 3, 5, 2, 4])
        return tf.reshape(moved, [batch, channels * block**2, height // block, width // block])

    return call


def _expand(context: NodeContext) -> Kernel:
    """Broadcast to a shape and by it: where it asks for 1, x keeps its own size."""

    def call(x: Tensor, given: Tensor) -> Tensor:
        shape = known(context, 1, given)
        if shape is not None and x.shape.is_fully_defined():
            return tf.broadcast_to(x, np.broadcast_shapes(tuple(x.shape), tuple(int(size) for size in shape)))
        return tf.broadcast_to(x, tf.broadcast_dynamic_shape(tf.shape(x), tf.cast(given, tf.int32)))

    return call


def _flatten(context: NodeContext) -> Kernel:
    """The input as a matrix, split at the axis."""

    def call(x: Tensor) -> Tensor:
        axis, shape = axis_of(context, x, default=1), sizes(x)
        rows, columns = shape[:axis], shape[axis:]
        if all(isinstance(size, int) for size in columns) and (0 not in columns or axis == 0):
            return tf.reshape(x, [1 if axis == 0 else -1, int(np.prod(columns, dtype=np.int64))])
        return tf.reshape(x, [tf.reduce_prod(rows) if rows else 1, tf.reduce_prod(columns) if columns else 1])

    return call


def _identity(context: NodeContext) -> Kernel:
    return lambda x: x


def _reshape(context: NodeContext) -> Kernel:
    """0 takes the size that x has there (unless allowzero), −1 what is left."""
    copies = not context.attribute("allowzero", 0)

    def call(x: Tensor, given: Tensor) -> Tensor:
        shape = known(context, 1, given)
        if shape is None:
            wanted = tf.where(tf.equal(given, 0), _leading_sizes(x, given), given) if copies else given
            return tf.reshape(x, wanted)
        asked = [int(size) for size in shape]
        if not copies or 0 not in asked:
            return tf.reshape(x, asked)
        return tf.reshape(x, _copied(asked, x))

    return call


def _leading_sizes(x: Tensor, given: Tensor) -> Tensor:
    """The shape of x, cut or filled with zeros to the length of the shape that is asked for."""
    length, shape = tf.size(given), tf.shape(x, given.dtype)
    kept = shape[:length]
    return tf.pad(kept, [[0, length - tf.size(kept)]])


def _copied(asked: list[int], x: Tensor) -> list[Size]:
    """The sizes with 0 replaced; a size known only later becomes −1, and the −1 a number, where that can be.

    So TensorFlow's graph keeps the sizes that are known: (batch, 3, 8, 8) as (0, −1) is (−1, 192).
    """
    own = x.shape.as_list()
    found: list[Size] = [own[axis] if size == 0 else size for axis, size in enumerate(asked)]
    if found.count(None) == 1 and own.count(None) == 1:
        rest = int(np.prod([size for size in own if size is not None], dtype=np.int64))
        others = int(np.prod([size for size in found if size not in (None, -1)], dtype=np.int64))
        if others and rest % others == 0:
            return [-1 if size is None else rest // others if size == -1 else size for size in found]
    shape = sizes(x)
    return [shape[axis] if size == 0 else size for axis, size in enumerate(asked)]


def _slice(context: NodeContext) -> Kernel:
    def call(
        x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None, steps: Tensor | None = None
    ) -> Tensor:
        count = rank(context, x)
        first, last, by = (
            _listed(context, index, each) for index, each in ((1, starts), (2, ends), (4, steps))
        )
        length = len(first) if isinstance(first, list) else starts.shape[0]
        chosen = list(range(length)) if axes is None else from_front(integers(context, 3, axes), count)
        begin, end, step = [0] * count, [0] * count, [1] * count
        for place, axis in enumerate(chosen):
            step[axis] = 1 if steps is None else by[place]
            begin[axis], end[axis] = _start(first[place], step[axis], sizes(x)[axis]), last[place]
        whole = sum(1 << axis for axis in range(count) if axis not in chosen)
        bounds = (tf.stack([tf.cast(each, tf.int64) for each in part]) for part in (begin, end, step))
        if all(isinstance(each, int) for part in (begin, end, step) for each in part):
            bounds = (np.asarray(part, np.int64) for part in (begin, end, step))
        return tf.strided_slice(x, *bounds, begin_mask=whole, end_mask=whole)

    return call


def _start(first: Size, by: Size, size: Size) -> Size:
    """Where a slice begins: at the first element where it would begin before it and go backwards."""
    if isinstance(by, int) and by > 0:
        return first
    if isinstance(first, int) and isinstance(size, int):
        moved: Size = max(first, -size)
    else:
        moved = tf.maximum(tf.cast(first, tf.int64), -tf.cast(size, tf.int64))
    return moved if isinstance(by, int) else tf.where(by < 0, moved, tf.cast(first, tf.int64))


def _listed(context: NodeContext, index: int, given: Tensor | None) -> Any:
    """The numbers of this input, or the tensor where they are known only when the graph runs."""
    if given is None:
        return []
    value = known(context, index, given)
    return given if value is None else [int(number) for number in np.reshape(value, -1)]


def _split(context: NodeContext) -> Kernel:
    parts = len(context.node.outputs)

    def call(x: Tensor, given: Tensor | None = None) -> Any:
        axis = axis_of(context, x)
        lengths = _equal_parts(sizes(x)[axis], parts) if given is None else known(context, 1, given)
        if lengths is not None and not tf.is_tensor(lengths):
            lengths = [int(length) for length in lengths]
        found = tf.split(x, given if lengths is None else lengths, axis, num=parts)
        return found[0] if parts == 1 else tuple(found)

    return call


def _equal_parts(size: Size, parts: int) -> Any:
    """The last is shorter where the size cannot be divided."""
    length = -(-size // parts)
    last = size - length * (parts - 1)
    return (
        [length] * (parts - 1) + [last]
        if isinstance(size, int)
        else tf.stack([length] * (parts - 1) + [last])
    )


def _squeeze(context: NodeContext) -> Kernel:
    attribute = context.attribute("axes")

    def call(x: Tensor, given: Tensor | None = None) -> Tensor:
        if given is None and attribute is None:
            return tf.squeeze(x)
        axes = tuple(attribute) if given is None else integers(context, 1, given)
        return tf.squeeze(x, list(axes)) if axes else x

    return call


def _unsqueeze(context: NodeContext) -> Kernel:
    attribute = context.attribute("axes")

    def call(x: Tensor, given: Tensor | None = None) -> Tensor:
        axes = tuple(attribute) if given is None else integers(context, 1, given)
        for axis in sorted(from_front(axes, rank(context, x) + len(axes))):
            x = tf.expand_dims(x, axis)
        return x

    return call


def _tile(context: NodeContext) -> Kernel:
    repeats = context.constants.get(1)
    return tf.tile if repeats is None else lambda x, _: tf.tile(x, repeats)


def _transpose(context: NodeContext) -> Kernel:
    order = context.attribute("perm")
    return lambda x: tf.transpose(x, None if order is None else list(order))


def _triangle(context: NodeContext) -> Kernel:
    """The upper or lower triangle of matrices, from the k-th diagonal on; the rest is 0."""
    upper = bool(context.attribute("upper", 1))

    def call(x: Tensor, k: Tensor | None = None) -> Tensor:
        rows, columns = sizes(x)[-2:]
        offset = tf.zeros((), tf.int64) if k is None else tf.reshape(k, [])
        rows, columns = (tf.range(tf.cast(size, tf.int64)) for size in (rows, columns))
        diagonal = columns - rows[:, tf.newaxis]
        return tf.where(diagonal >= offset if upper else diagonal <= offset, x, tf.zeros((), x.dtype))

    return call


FACTORIES: Mapping[str, KernelFactory] = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Identity": _identity,
    "Pad": pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _triangle,
    "Unsqueeze": _unsqueeze,
}
