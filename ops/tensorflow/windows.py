"""Windows of a kernel over an image: strides, dilations and the padding that ONNX asks for"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Size, Tensor

Pads = list[tuple[Size, Size]]  # before and after, for every axis of the space


@final
@dataclass(frozen=True)
class Window:
    """A kernel with its strides and dilations, an entry for every axis of the space."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]  # all before, then all after, as ONNX has them
    automatic: str  # how padding is found where it is not given: SAME_UPPER, SAME_LOWER, VALID
    up: bool  # whether a window that stands over the end in part counts

    @property
    def extent(self) -> tuple[int, ...]:
        """The reach of the kernel, with its dilations."""
        return tuple((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True))

    @property
    def dilated(self) -> bool:
        """True if some dilation is not 1."""
        return any(step != 1 for step in self.dilations)

    def padding(self, space: Sequence[Size]) -> Pads:
        """The padding around an image of this size; the windows then lie inside it."""
        count = len(self.kernel)
        if self.automatic in ("SAME_UPPER", "SAME_LOWER"):
            return [self._same(axis, size, self.automatic) for axis, size in enumerate(space)]
        given = [(self.pads[axis], self.pads[axis + count]) for axis in range(count)]
        if not self.up:
            return list(given)
        return [self._rounded_up(axis, size, *given[axis]) for axis, size in enumerate(space)]

    def named(self, space: Sequence[Size], pads: Pads) -> str | None:
        """TensorFlow's name for this padding around an image of this size, None if it has none."""
        if is_zero(pads):
            return "VALID"
        if self.automatic == "SAME_UPPER":
            return "SAME"
        for axis, (size, pair) in enumerate(zip(space, pads, strict=True)):
            own = self._same(axis, size, "SAME_UPPER")
            if not is_known([pair, own]) or pair != own:
                return None
        return "SAME"

    def _same(self, axis: int, size: Size, automatic: str) -> tuple[Size, Size]:
        """The padding for size/stride windows, rounded up; the odd one is added after, or before."""
        stride, extent = self.strides[axis], self.extent[axis]
        total = extent - 1 if stride == 1 else positive((-(-size // stride) - 1) * stride + extent - size)
        half = total // 2
        return (half, total - half) if automatic == "SAME_UPPER" else (total - half, half)

    def _rounded_up(self, axis: int, size: Size, before: int, after: int) -> tuple[Size, Size]:
        """The padding that makes the last window whole, which must begin before the padding at the end."""
        stride, extent = self.strides[axis], self.extent[axis]
        steps = -(-(size + before + after - extent) // stride)
        late = steps * stride >= size + before
        steps = steps - (int(late) if isinstance(late, bool) else tf.cast(late, tf.int32))
        return before, after + positive(steps * stride + extent - (size + before + after))


def positive(size: Size) -> Size:
    """The greater of size and 0, in a graph too."""
    return tf.maximum(size, 0) if tf.is_tensor(size) else max(size, 0)


def window(context: NodeContext, kernel: Sequence[int]) -> Window:
    """The node's window, with this kernel. Raises `ConfigurationError` where attributes do not fit."""
    count = len(kernel)
    ones, automatic = (1,) * count, context.attribute("auto_pad", "NOTSET")
    if automatic not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ConfigurationError(
            f"the node {context.node} has auto_pad={automatic!r}: give NOTSET, VALID, SAME_UPPER or "
            "SAME_LOWER"
        )
    found = Window(
        kernel=tuple(int(size) for size in kernel),
        strides=tuple(context.attribute("strides", ones)),
        dilations=tuple(context.attribute("dilations", ones)),
        pads=tuple(context.attribute("pads", (0,) * 2 * count))
        if automatic == "NOTSET"
        else (0,) * 2 * count,
        automatic=automatic,
        up=bool(context.attribute("ceil_mode", 0)) and automatic == "NOTSET",
    )
    for name, values, length in (
        ("strides", found.strides, count),
        ("dilations", found.dilations, count),
        ("pads", found.pads, 2 * count),
    ):
        if len(values) != length:
            raise ConfigurationError(
                f"the node {context.node} has {name}={list(values)} for a kernel with {count} axes: "
                f"give {length} numbers"
            )
    return found


def is_zero(pads: Pads) -> bool:
    """True if every padding is known when the graph is built, and 0."""
    return all(isinstance(size, int) and size == 0 for pair in pads for size in pair)


def is_known(pads: Pads) -> bool:
    """True if every padding is known when the graph is built."""
    return all(isinstance(size, int) for pair in pads for size in pair)


def padded(x: Tensor, pads: list[tuple[Size, Size]], fill: float = 0) -> Tensor:
    """x with `fill` around it; an entry of pads for every axis."""
    if is_zero(pads):
        return x
    return tf.pad(x, pads, constant_values=tf.cast(fill, x.dtype))
