"""Pooling: the greatest, the mean, the norm, in windows and over whole images"""

import itertools
from collections.abc import Callable, Mapping
from functools import reduce

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.geometry.windows import Pads, Window, window
from d5ray.ops.tensorflow.layout import ImageLayout, current_layout, over_space
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Size, Tensor, root, sizes
from d5ray.ops.tensorflow.windows import is_zero, named, padded, padding_of

NO_PADS = (0, 0)  # of batch and channels


def _max_pool(context: NodeContext) -> Kernel:
    layout, own = current_layout(), window(context, context.required("kernel_shape"))
    if context.has_output(1):
        by_column = bool(context.attribute("storage_order", 0))
        return lambda x: _greatest_with_place(x, own, padding_of(own, sizes(x)[2:]), by_column)

    def call(x: Tensor) -> Tensor:
        pads = padding_of(own, sizes(x)[2:])
        if own.dilated or not x.dtype.is_floating or _lacks_kernel(x):
            return reduce(tf.maximum, taps(x, own, pads, x.dtype.min))
        return _pooled(layout, tf.nn.max_pool2d, tf.nn.max_pool3d, x, own, pads, float("-inf"))

    return call


def _pooled(
    layout: ImageLayout,
    two: Callable[..., Tensor],
    three: Callable[..., Tensor],
    x: Tensor,
    own: Window,
    pads: Pads,
    fill: float,
) -> Tensor:
    """Pooling by TensorFlow's kernel `two` or `three`, by the number of axes; one axis is an image's row."""
    images, count = layout.enter(x), len(own.kernel)
    padding = named(own, layout.space(images), pads)
    if padding is None or (padding == "SAME" and fill == 0):  # which TensorFlow leaves out of means
        images, padding = padded(images, layout.spread(pads, NO_PADS), fill), "VALID"
    if count == 3:
        return layout.leave(three(images, own.kernel, own.strides, padding, layout.name(3)))
    if count == 2:
        return layout.leave(two(images, own.kernel, own.strides, padding, layout.name(2)))
    height = 2 if layout.first else 1
    y = two(tf.expand_dims(images, height), (1, *own.kernel), (1, *own.strides), padding, layout.name(2))
    return layout.leave(tf.squeeze(y, height))


def _lacks_kernel(x: Tensor) -> bool:
    """True for float64 in three dimensions, which TensorFlow cannot pool."""
    return bool(x.shape.rank == 5 and x.dtype == tf.float64)


def taps(x: Tensor, own: Window, pads: Pads, fill: float) -> list[Tensor]:
    """The elements under every place of the kernel, by rows, each in the shape of the output.

    For what TensorFlow's kernels for pooling cannot do: dilations, places, integers.
    """
    x = padded(x, [NO_PADS, NO_PADS, *pads], fill)
    last = [
        (size - extent) // stride * stride
        for size, extent, stride in zip(sizes(x)[2:], own.extents, own.strides, strict=True)
    ]
    return [
        x[
            (
                slice(None),
                slice(None),
                *(
                    slice(place * step, place * step + end + 1, stride)
                    for place, step, end, stride in zip(places, own.dilations, last, own.strides, strict=True)
                ),
            )
        ]
        for places in itertools.product(*map(range, own.kernel))
    ]


def _greatest_with_place(x: Tensor, own: Window, pads: Pads, by_column: bool) -> tuple[Tensor, Tensor]:
    """The greatest under the kernel, the first of equals, and where in the flattened images it stands."""
    images, channels, *space = (tf.cast(size, tf.int64) for size in sizes(x))
    best = tf.argmax(tf.stack(taps(x, own, pads, x.dtype.min)), 0)  # of the kernel's places, (N, C, *out)
    where = _coordinates(best, own, pads)
    planes = tf.reshape(tf.range(images * channels), [images, channels] + [1] * len(space)) * tf.reduce_prod(
        space
    )
    place = planes + _raveled(where, space)
    greatest = tf.gather(tf.reshape(x, [-1]), place)
    return greatest, planes + _raveled(where[::-1], space[::-1]) if by_column else place


def _coordinates(best: Tensor, own: Window, pads: Pads) -> list[Tensor]:
    """The place in the image, axis by axis, of the kernel's place `best` for every window."""
    found: list[Tensor] = []
    for axis in reversed(range(len(own.kernel))):
        starts = tf.range(sizes(best)[axis + 2]) * own.strides[axis] - pads[axis][0]
        starts = tf.reshape(tf.cast(starts, tf.int64), [-1] + [1] * (len(own.kernel) - 1 - axis))
        found.insert(0, starts + best % own.kernel[axis] * own.dilations[axis])
        best = best // own.kernel[axis]
    return found


def _raveled(where: list[Tensor], space: list[Size]) -> Tensor:
    """The number of an element in its image, from its coordinates; the last one runs quickest."""
    number = where[0]
    for coordinate, size in zip(where[1:], space[1:], strict=True):
        number = number * size + coordinate
    return number


def _mean(layout: ImageLayout, x: Tensor, own: Window, pads: Pads) -> Tensor:
    """The mean over all places of the kernel, with zeros around the image."""
    if own.dilated or _lacks_kernel(x):
        under = taps(x, own, pads, 0)
        return tf.add_n(under) / tf.cast(len(under), x.dtype)
    return _pooled(layout, tf.nn.avg_pool2d, tf.nn.avg_pool3d, x, own, pads, 0)


def _average_pool(context: NodeContext) -> Kernel:
    layout, own = current_layout(), window(context, context.required("kernel_shape"))
    with_padding = bool(context.attribute("count_include_pad", 0))

    def call(x: Tensor) -> Tensor:
        space = sizes(x)[2:]
        pads = padding_of(own, space)
        mean = _mean(layout, x, own, pads)
        if is_zero(pads) or (with_padding and not own.rounds_up):
            return mean
        # What counts is 1, the rest 0, and its mean is the share of the kernel that counts.
        counted = tf.ones([1, 1, *space], x.dtype)
        if with_padding:
            given = own.padding(space)
            counted = padded(counted, [NO_PADS, NO_PADS, *given], 1)
            pads = [(0, pad[1] - own_pad[1]) for pad, own_pad in zip(pads, given, strict=True)]
        return mean / _mean(layout, counted, own, pads)

    return call


def _lp_pool(context: NodeContext) -> Kernel:
    """(Σ |x|^p)^(1/p)"""
    layout, own, degree = (
        current_layout(),
        window(context, context.required("kernel_shape")),
        context.attribute("p", 2),
    )
    places = 1
    for size in own.kernel:
        places *= size

    def call(x: Tensor) -> Tensor:
        powers = tf.square(x) if degree == 2 else tf.pow(tf.abs(x), tf.cast(degree, x.dtype))
        return root(_mean(layout, powers, own, padding_of(own, sizes(x)[2:])) * places, degree)

    return call


def _global(function: Callable[..., Tensor]) -> KernelFactory:
    def build(context: NodeContext) -> Kernel:
        return lambda x: over_space(function, x)

    return build


FACTORIES: Mapping[str, KernelFactory] = {
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global(tf.reduce_mean),
    "GlobalMaxPool": _global(tf.reduce_max),
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
}
