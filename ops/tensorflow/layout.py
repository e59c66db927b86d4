"""Channels first or last: the layout in which TensorFlow's kernels for images work, and the way there"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, final

from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Size, Tensor, sizes

_TWIN = "_d5ray_channels_last"
_FILTERS = "_d5ray_filters"


class ImageLayout(ABC):
    """ONNX's images are (batch, channels, *space); `enter` brings them to the kernels' layout."""

    first: bool  # whether the channels come before the space

    @abstractmethod
    def enter(self, x: Tensor) -> Tensor:
        """A tensor (batch, channels, *space) in the kernels' layout."""

    @abstractmethod
    def leave(self, y: Tensor) -> Tensor:
        """A tensor in the kernels' layout as (batch, channels, *space)."""

    @abstractmethod
    def name(self, dimensions: int) -> str:
        """TensorFlow's name of the layout: NCHW, NHWC, and so on."""

    def space(self, images: Tensor) -> list[Size]:
        """The sizes of images in the kernels' layout, without batch and channels."""
        return sizes(images)[2:] if self.first else sizes(images)[1:-1]

    @abstractmethod
    def spread(self, space: Sequence[Any], other: Any) -> list[Any]:
        """An entry for every axis: those of the space, and `other` for batch and channels."""


@final
class ChannelsFirstImages(ImageLayout):
    """ONNX's own layout, which the kernels of GPUs know."""

    first = True

    def enter(self, x: Tensor) -> Tensor:
        return x

    def leave(self, y: Tensor) -> Tensor:
        return y

    def name(self, dimensions: int) -> str:
        return "NC" + "DHW"[3 - dimensions :]

    def spread(self, space: Sequence[Any], other: Any) -> list[Any]:
        return [other, other, *space]


@final
class ChannelsLastImages(ImageLayout):
    """The only layout that TensorFlow's kernels know on CPUs.

    A transpose before a kernel and one after it cost two passes over the image each time. In a graph most of
    them vanish: a tensor that left the layout remembers the tensor that it was made from, and what enters the
    layout again takes that one, also through the element-wise operators between (`kept_layout`). The
    transpose that nobody reads then is no part of what runs. In eager mode every transpose is paid for.

    So the tape sees the original used, not the tensor that left: who wants the gradient with respect to a
    tensor between two operators of a graph gives `tf.identity` of it to the second, and asks for that one's.
    """

    first = False

    def enter(self, x: Tensor) -> Tensor:
        twin = getattr(x, _TWIN, None)
        return tf.transpose(x, [0, *range(2, x.shape.rank), 1]) if twin is None else twin

    def leave(self, y: Tensor) -> Tensor:
        count = y.shape.rank
        x = tf.transpose(y, [0, count - 1, *range(1, count - 1)])
        if not tf.executing_eagerly():
            setattr(x, _TWIN, y)
        return x

    def name(self, dimensions: int) -> str:
        return "N" + "DHW"[3 - dimensions :] + "C"

    def spread(self, space: Sequence[Any], other: Any) -> list[Any]:
        return [other, *space, other]


CHANNELS_LAST = ChannelsLastImages()
CHANNELS_FIRST = ChannelsFirstImages()


def current_layout() -> ImageLayout:
    """The layout for the device on which tensors are made where this is called (`with tf.device(...)`)."""
    device = tf.zeros(()).device or (tf.config.list_logical_devices("GPU") and "GPU")
    return CHANNELS_FIRST if "GPU" in (device or "") else CHANNELS_LAST


def filters_of(weights: Tensor) -> Tensor:
    """ONNX's weights (out, in, *kernel) as filters (*kernel, in, out): those they are made of, if any."""
    made_of = held_filters(weights)
    return tf.transpose(weights, [*range(2, weights.shape.rank), 1, 0]) if made_of is None else made_of


def held_filters(weights: Tensor) -> Tensor | None:
    """The tensor that `weights_of` has made these weights of; None for all others."""
    return getattr(weights, _FILTERS, None)


def weights_of(filters: Tensor) -> Tensor:
    """The reverse of `filters_of`. In a graph this costs nothing where only those read the weights who ask.

    Two axes are (in, out) for (out, in), as linear layers have them.
    """
    count = filters.shape.rank
    weights = tf.transpose(filters, [count - 1, count - 2, *range(count - 2)])
    if not tf.executing_eagerly():
        setattr(weights, _FILTERS, filters)
    return weights


def kept_layout(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """An element-wise function that works on the channels-last originals of its inputs, if they have any."""

    @wraps(function)
    def call(*given: Tensor) -> Tensor:
        if tf.executing_eagerly():
            return function(*given)
        twins = [getattr(x, _TWIN, None) for x in given]
        ranks = {twin.shape.rank for twin in twins if twin is not None}
        if len(ranks) != 1:
            return function(*given)
        moved = [
            twin if twin is not None else _moved(x, *ranks) for x, twin in zip(given, twins, strict=True)
        ]
        if any(x is None for x in moved):
            return function(*given)
        return CHANNELS_LAST.leave(function(*moved))

    return call


def _moved(x: Tensor, count: int) -> Tensor | None:
    """x for a broadcast with channels-last images of `count` axes, where that takes no work, else None."""
    if x is None or x.shape.rank is None or x.shape.rank > count:
        return None
    if x.shape.rank == 0:
        return x
    shape = [1] * (count - x.shape.rank) + x.shape.as_list()
    if any(size != 1 for size in shape[2:]) or shape[0] is None:
        return None
    return tf.reshape(x, [shape[0], *shape[2:], -1 if shape[1] is None else shape[1]])


def over_space(function: Callable[..., Tensor], x: Tensor) -> Tensor:
    """A reduction of images over their space, whose axes stay, of the channels-last original if any."""
    twin = getattr(x, _TWIN, None)
    if twin is None:
        return function(x, list(range(2, x.shape.rank)), keepdims=True)
    return CHANNELS_LAST.leave(function(twin, list(range(1, x.shape.rank - 1)), keepdims=True))


def kept_concat(given: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors in a row along an axis (from the front), of the channels-last originals if all have them."""
    twins = [getattr(x, _TWIN, None) for x in given]
    if any(twin is None for twin in twins):
        return tf.concat(given, axis)
    count = given[0].shape.rank
    return CHANNELS_LAST.leave(tf.concat(twins, {0: 0, 1: count - 1}.get(axis, axis - 1)))
