"""Windows of a kernel over an image: its padding as TensorFlow takes it, by name or laid around"""

from collections.abc import Sequence

from d5ray.ops.geometry.windows import Pads, Size, Window
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor


def padding_of(own: Window, space: Sequence[Size]) -> Pads:
    """The padding around an image of this size; the windows then lie inside it."""
    pads = own.padding(space)
    if not own.rounds_up:
        return pads
    return [(before, after + more) for (before, after), more in zip(pads, own.beyond(space), strict=True)]


def named(own: Window, space: Sequence[Size], pads: Pads) -> str | None:
    """TensorFlow's name for this padding around an image of this size, None if it has none."""
    if is_zero(pads):
        return "VALID"
    if own.auto_pad == "SAME_UPPER":
        return "SAME"
    for axis, (size, pair) in enumerate(zip(space, pads, strict=True)):
        same = own.same(axis, size, more_after=True)
        if not is_known([pair, same]) or pair != same:
            return None
    return "SAME"


def is_zero(pads: Pads) -> bool:
    """True if every padding is known when the graph is built, and 0."""
    return all(isinstance(size, int) and size == 0 for pair in pads for size in pair)


def is_known(pads: Pads) -> bool:
    """True if every padding is known when the graph is built."""
    return all(isinstance(size, int) for pair in pads for size in pair)


def padded(x: Tensor, pads: Pads, fill: float = 0) -> Tensor:
    """x with `fill` around it; an entry of pads for every axis."""
    if is_zero(pads):
        return x
    return tf.pad(x, pads, constant_values=tf.cast(fill, x.dtype))
