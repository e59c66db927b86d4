"""Conv and ConvTranspose, in one, two and three dimensions, grouped, dilated, strided"""

from collections.abc import Mapping
from functools import cache, partial

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.geometry.windows import Pads, Window, halves, positive, window
from d5ray.ops.tensorflow.layout import ImageLayout, current_layout, filters_of
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Size, Tensor, sizes
from d5ray.ops.tensorflow.windows import is_known, is_zero, named, padded, padding_of


def _conv(context: NodeContext) -> Kernel:
    layout, groups = current_layout(), context.attribute("group", 1)
    windowed = cache(partial(window, context))

    def call(x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
        _check(context, x, weights, weights.shape[1] * groups, groups)
        own = windowed(tuple(weights.shape.as_list()[2:]))
        pads = padding_of(own, sizes(x)[2:])
        images, filters, own, pads = _two_dimensional(layout, layout.enter(x), weights, own, pads)
        y = _convolved(layout, images, filters, own, pads, groups)
        return _finished(layout, y, bias, x.shape.rank)

    return call


def _check(context: NodeContext, x: Tensor, weights: Tensor, channels: int | None, groups: int) -> None:
    """Raise `ConfigurationError` unless the weights fit the images."""
    if x.shape.rank != weights.shape.rank or x.shape.rank not in (3, 4, 5):
        raise ConfigurationError(
            f"the node {context.node} has images of shape {x.shape} and weights of shape {weights.shape}: "
            "both need the same number of axes, with one, two or three for the space"
        )
    if x.shape[1] is not None and channels is not None and x.shape[1] != channels:
        raise ConfigurationError(
            f"the node {context.node} has images of shape {x.shape} and weights of shape {weights.shape} in "
            f"{groups} groups: these weights need images with {channels} channels"
        )


def _two_dimensional(
    layout: ImageLayout, images: Tensor, weights: Tensor, own: Window, pads: Pads
) -> tuple[Tensor, Tensor, Window, Pads]:
    """Signals with one axis of space as images of height 1: TensorFlow has no kernel for them either."""
    if weights.shape.rank != 3:
        return images, weights, own, pads
    lifted = Window((1, *own.kernel), (1, *own.strides), (1, *own.dilations), (), (), own.auto_pad)
    images = tf.expand_dims(images, 2 if layout.first else 1)
    return images, tf.expand_dims(weights, 2), lifted, [(0, 0), *pads]


def _finished(layout: ImageLayout, y: Tensor, bias: Tensor | None, rank: int) -> Tensor:
    """The convolution with the bias, which Grappler fuses into it, in ONNX's layout and number of axes."""
    if bias is not None:
        y = tf.nn.bias_add(y, bias, data_format="NC..." if layout.first else "N...C")
    if rank == 3:
        y = tf.squeeze(y, 2 if layout.first else 1)
    return layout.leave(y)


def _convolved(
    layout: ImageLayout, images: Tensor, weights: Tensor, own: Window, pads: Pads, groups: int
) -> Tensor:
    """Weights (out, in/groups, *kernel)."""
    channels = images.shape[1 if layout.first else -1]
    if groups == 1:
        return _convolution(layout, images, filters_of(weights), own, pads)
    if channels == groups and len(own.kernel) == 2 and own.strides[0] == own.strides[1]:
        return _depthwise(layout, images, weights, own, pads)
    axis = 1 if layout.first else -1
    parts = zip(tf.split(images, groups, axis), tf.split(filters_of(weights), groups, -1), strict=True)
    return tf.concat([_convolution(layout, part, filters, own, pads) for part, filters in parts], axis)


def _convolution(layout: ImageLayout, images: Tensor, filters: Tensor, own: Window, pads: Pads) -> Tensor:
    """Filters (*kernel, in, out)."""
    count = len(own.kernel)
    name, strides = layout.name(count), layout.spread(own.strides, 1)
    if _in_parts(layout, own):
        images = padded(images, layout.spread(pads, (0, 0)))
        return tf.nn.convolution(images, filters, padding="VALID", data_format=name, dilations=own.dilations)
    images, padding = _with_padding(layout, images, own, pads)
    filters, dilations = _dilation(layout, filters, own)
    return (tf.nn.conv3d if count == 3 else tf.nn.conv2d)(images, filters, strides, padding, name, dilations)


def _with_padding(layout: ImageLayout, images: Tensor, own: Window, pads: Pads) -> tuple[Tensor, str]:
    """The images and the padding that is left to the kernel, SAME or VALID.

    The kernels take numbers too, but their gradients then take half as long again.
    """
    name = named(own, layout.space(images), pads)
    return (padded(images, layout.spread(pads, (0, 0))), "VALID") if name is None else (images, name)


def _depthwise(layout: ImageLayout, images: Tensor, weights: Tensor, own: Window, pads: Pads) -> Tensor:
    """Every channel has filters of its own: weights (channels · multiplier, 1, height, width)."""
    parts, filters = _in_parts(layout, own), filters_of(weights)
    filters = filters if parts else _with_gaps(filters, own)
    filters = tf.reshape(filters, [*filters.shape[:2], images.shape[1 if layout.first else -1], -1])
    strides, name = layout.spread(own.strides, 1), layout.name(2)
    if parts:
        images = padded(images, layout.spread(pads, (0, 0)))
        return tf.nn.depthwise_conv2d(images, filters, strides, "VALID", name, own.dilations)
    images, padding = _with_padding(layout, images, own, pads)
    return tf.nn.depthwise_conv2d(images, filters, strides, padding, name)


def _in_parts(layout: ImageLayout, own: Window) -> bool:
    """True if TensorFlow takes the image apart for a dilated kernel (space to batch), as for stride 1.

    Its kernels for CPUs have no gradient with dilations, and those for three dimensions no dilations.
    """
    kernel_does_it = layout.first and len(own.kernel) < 3
    return own.dilated and not kernel_does_it and all(stride == 1 for stride in own.strides)


def _dilation(layout: ImageLayout, filters: Tensor, own: Window) -> tuple[Tensor, list[int]]:
    """The filters and the dilations for the kernel: where it has none, the gaps are zeros in the filters."""
    if own.dilated and not (layout.first and len(own.kernel) < 3):
        return _with_gaps(filters, own), layout.spread([1] * len(own.kernel), 1)
    return filters, layout.spread(own.dilations, 1)


def _with_gaps(filters: Tensor, own: Window) -> Tensor:
    """Filters (*kernel, ·, ·) with zeros between their elements."""
    for axis, (size, step) in enumerate(zip(own.kernel, own.dilations, strict=True)):
        if step == 1 or size == 1:
            continue
        shape = filters.shape.as_list()
        apart = tf.pad(
            tf.expand_dims(filters, axis + 1),
            [(0, step - 1 if each == axis + 1 else 0) for each in range(len(shape) + 1)],
        )
        merged = tf.reshape(apart, [*shape[:axis], size * step, *shape[axis + 1 :]])
        filters = merged[(slice(None),) * axis + (slice(0, (size - 1) * step + 1),)]
    return filters


def _conv_transpose(context: NodeContext) -> Kernel:
    layout, groups = current_layout(), context.attribute("group", 1)
    windowed = cache(partial(window, context))

    def call(x: Tensor, weights: Tensor, bias: Tensor | None = None) -> Tensor:
        _check(context, x, weights, weights.shape[0], groups)
        own = windowed(tuple(weights.shape.as_list()[2:]))
        pads = _cropping(context, own, sizes(x)[2:])
        images, weights, own, pads = _two_dimensional(layout, layout.enter(x), weights, own, pads)
        y = _transposed(layout, images, filters_of(weights), own, pads, groups)
        return _finished(layout, y, bias, x.shape.rank)

    return call


def _cropping(context: NodeContext, own: Window, space: list[Size]) -> Pads:
    """The elements cut off before and after the full result, (in − 1) · stride + extent; negative: added."""
    count = len(own.kernel)
    added, wanted = context.attribute("output_padding", (0,) * count), context.attribute("output_shape")
    found: Pads = []
    for axis in range(count):
        stride, extent = own.strides[axis], own.extents[axis]
        if wanted is not None:
            total = stride * (space[axis] - 1) + added[axis] + extent - wanted[axis]
        elif own.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            total = added[axis] + extent - stride
        else:
            found.append((own.before[axis], own.after[axis] - added[axis]))
            continue
        before, after = halves(total, more_after=own.auto_pad == "SAME_UPPER")
        found.append((before, after - added[axis]))
    return found


def _transposed(
    layout: ImageLayout, images: Tensor, filters: Tensor, own: Window, pads: Pads, groups: int
) -> Tensor:
    """Filters (*kernel, out/groups, in)."""
    axis = 1 if layout.first else -1
    filters = _with_gaps(filters, own)
    shape = [
        (size - 1) * stride + extent
        for size, stride, extent in zip(layout.space(images), own.strides, own.extents, strict=True)
    ]
    # What TensorFlow has a name for is cropped by the kernel, all else of the full result.
    inner = [size - before - after for size, (before, after) in zip(shape, pads, strict=True)]
    padding = named(own, inner, pads) if is_known(pads) else None
    shape, pads = (shape, pads) if padding is None else (inner, [(0, 0)] * len(pads))
    parts = [
        _transposed_group(layout, part, own_filters, own, shape, padding or "VALID")
        for part, own_filters in zip(
            tf.split(images, groups, axis) if groups > 1 else [images],
            tf.split(filters, groups, -1) if groups > 1 else [filters],
            strict=True,
        )
    ]
    return _trimmed(tf.concat(parts, axis) if groups > 1 else parts[0], layout.spread(pads, (0, 0)))


def _transposed_group(
    layout: ImageLayout, images: Tensor, filters: Tensor, own: Window, shape: list[Size], padding: str
) -> Tensor:
    count, batch, channels = len(own.kernel), sizes(images)[0], filters.shape[-2]
    result = [batch, channels, *shape] if layout.first else [batch, *shape, channels]
    kernel = tf.nn.conv3d_transpose if count == 3 else tf.nn.conv2d_transpose
    return kernel(images, filters, result, layout.spread(own.strides, 1), padding, layout.name(count))


def _trimmed(y: Tensor, pads: Pads) -> Tensor:
    """y without what `pads` names, or, where that is negative, with zeros."""
    if is_zero(pads):
        return y
    begin = [positive(before) for before, _ in pads]
    size = [
        length - start - positive(after)
        for length, start, (_, after) in zip(sizes(y), begin, pads, strict=True)
    ]
    return padded(tf.slice(y, begin, size), [(positive(-before), positive(-after)) for before, after in pads])


FACTORIES: Mapping[str, KernelFactory] = {"Conv": _conv, "ConvTranspose": _conv_transpose}
