"""Windows that slide over images: how many there are and where they lie, for convolution and pooling"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext

Sizes = tuple[int, ...]  # one for every spatial axis
Size = Any  # of an axis of an image: an integer, or a tensor of one where a graph learns it when it runs
Pads = list[tuple[Size, Size]]  # before and after, for every spatial axis

AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@final
@dataclass(frozen=True)
class Window:
    """A kernel that moves over images, as a node's attributes say it; an entry for every spatial axis.

    before, after: the padding that is given. auto_pad: how it is found else, see `AUTO_PADS`.
    rounds_up: a last window counts that reaches beyond the padding, if it begins before that.
    """

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    before: Sizes
    after: Sizes
    auto_pad: str = "NOTSET"
    rounds_up: bool = False

    @property
    def extents(self) -> Sizes:
        """The elements from a window's first to its last."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def dilated(self) -> bool:
        """True if some dilation is not 1."""
        return any(step != 1 for step in self.dilations)

    def padding(self, image: Sequence[Size]) -> Pads:
        """The padding around an image of these sizes."""
        if self.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            return [self.same(axis, size) for axis, size in enumerate(image)]
        return list(zip(self.before, self.after, strict=True))

    def same(self, axis: int, size: Size, *, more_after: bool | None = None) -> tuple[Size, Size]:
        """The padding for size/stride windows, rounded up; more_after: by default as `auto_pad` says."""
        stride, extent = self.strides[axis], self.extents[axis]
        total = extent - 1 if stride == 1 else positive((-(-size // stride) - 1) * stride + extent - size)
        return halves(total, more_after=self.auto_pad == "SAME_UPPER" if more_after is None else more_after)

    def counts(self, image: Sequence[Size]) -> tuple[Size, ...]:
        """The number of windows along every axis of an image of these sizes."""
        return tuple(steps + 1 for steps, _ in self._last(image))

    def beyond(self, image: Sequence[Size]) -> tuple[Size, ...]:
        """The elements of the last windows beyond the padding, which `rounds_up` alone lets be."""
        return tuple(
            positive(steps * stride - room)
            for (steps, room), stride in zip(self._last(image), self.strides, strict=True)
        )

    def _last(self, image: Sequence[Size]) -> Iterator[tuple[Size, Size]]:
        """The strides up to the last window, and the elements that there are for them."""
        axes = zip(image, self.padding(image), self.extents, self.strides, strict=True)
        for size, (before, after), extent, stride in axes:
            room = size + before + after - extent
            if not self.rounds_up:
                yield room // stride, room
                continue
            steps = -(-room // stride)
            late = positive(steps * stride - (size + before) + 1)  # it begins in the padding, or after it
            yield steps - (late - positive(late - 1)), room


def window(context: NodeContext, kernel: Sequence[int]) -> Window:
    """The node's window, with this kernel. Raises `ConfigurationError` where attributes do not fit."""
    rank = len(kernel)
    auto_pad = str(context.attribute("auto_pad", "NOTSET"))
    if auto_pad not in AUTO_PADS:
        raise ConfigurationError(
            f"the node {context.node} has auto_pad {auto_pad!r}: it must be NOTSET, VALID, SAME_UPPER or "
            "SAME_LOWER"
        )
    given = auto_pad == "NOTSET"
    pads = _sizes(context, "pads", (0,) * (2 * rank), 2 * rank) if given else (0,) * (2 * rank)
    return Window(
        kernel=tuple(int(size) for size in kernel),
        strides=_sizes(context, "strides", (1,) * rank, rank),
        dilations=_sizes(context, "dilations", (1,) * rank, rank),
        before=pads[:rank],
        after=pads[rank:],
        auto_pad=auto_pad,
        rounds_up=given and bool(context.attribute("ceil_mode", 0)),
    )


def positive(size: Size) -> Size:
    """The greater of size and 0, of a tensor too."""
    return max(size, 0) if isinstance(size, int) else (size + abs(size)) // 2


def halves(total: Size, *, more_after: bool) -> tuple[Size, Size]:
    """Padding shared out to both ends, the odd element after or before."""
    less = total // 2
    return (less, total - less) if more_after else (total - less, less)


@final
@dataclass(frozen=True)
class Windows:
    """Windows of kernel elements over an image, axis by axis.

    Window o of an axis covers the elements o·stride − before + k·dilation, k in 0..kernel−1; what lies
    outside 0..image−1 is padding. counts: how many windows an axis has.
    """

    image: Sizes
    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    before: Sizes
    after: Sizes
    counts: Sizes

    @property
    def extents(self) -> Sizes:
        """The elements from a window's first to its last."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def reach(self) -> Sizes:
        """The elements of the padded image up to the last window's end."""
        steps = zip(self.counts, self.strides, self.extents, strict=True)
        return tuple((count - 1) * stride + extent for count, stride, extent in steps)


def convolution(context: NodeContext, image: Sizes, kernel: Sizes) -> Windows:
    """The windows of a Conv, whose kernel is the weight's (ONNX: Conv)."""
    shape = _sizes(context, "kernel_shape", kernel, len(image))
    if shape != kernel:
        raise ConfigurationError(
            f"the node {context.node} has kernel_shape {shape} for weights of {kernel}: drop it"
        )
    return _windows(context, image, kernel)


def pooling(context: NodeContext, image: Sizes) -> Windows:
    """The windows of a MaxPool, AveragePool or LpPool; ceil_mode lets the last one overlap the end."""
    kernel = _sizes(context, "kernel_shape", context.required("kernel_shape"), len(image))
    return _windows(context, image, kernel)


def transposed(context: NodeContext, windows: Sizes, kernel: Sizes) -> Windows:
    """The windows of a ConvTranspose: there is one for each element of its input, over its output.

    The output's size and padding follow from one another (ONNX: ConvTranspose); an output that is larger
    than the windows reach gets nothing there.
    """
    rank = len(windows)
    own = window(context, kernel)
    strides, dilations, auto_pad = own.strides, own.dilations, own.auto_pad
    extra = _sizes(context, "output_padding", (0,) * rank, rank)
    natural = tuple(
        stride * (count - 1) + more + extent
        for stride, count, more, extent in zip(strides, windows, extra, own.extents, strict=True)
    )
    asked = context.attribute("output_shape")
    if asked is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        asked = tuple(count * stride for count, stride in zip(windows, strides, strict=True))
    if asked is None:
        before, after = own.before, own.after
        image = tuple(n - b - a for n, b, a in zip(natural, before, after, strict=True))
    else:
        image = tuple(asked)[-rank:]  # exporters have written batch and channels too
        surplus = (max(0, n - size) for n, size in zip(natural, image, strict=True))
        pads = [halves(each, more_after=auto_pad == "SAME_UPPER") for each in surplus]
        before, after = tuple(b for b, _ in pads), tuple(a for _, a in pads)
    if min(image) < 1:
        raise ConfigurationError(
            f"the node {context.node} leaves an output of {image}: its padding is too large"
        )
    return Windows(image, kernel, strides, dilations, before, after, windows)


def _windows(context: NodeContext, image: Sizes, kernel: Sizes) -> Windows:
    own = window(context, kernel)
    pads, counts = own.padding(image), own.counts(image)
    before, after = tuple(b for b, _ in pads), tuple(a for _, a in pads)
    if min(counts) < 1:
        raise ConfigurationError(
            f"the node {context.node} finds no place for its window of {own.extents} in an image of {image} "
            f"with padding of {before} before and {after} after: take a smaller kernel or more padding"
        )
    return Windows(image, kernel, own.strides, own.dilations, before, after, counts)


def _sizes(context: NodeContext, name: str, default: Sequence[int], length: int) -> Sizes:
    found = tuple(context.attribute(name) or default)
    if len(found) != length:
        raise ConfigurationError(
            f"the node {context.node} has {name} {found}, but its input has "
            f"{length if name != 'pads' else length // 2} spatial axes: give {length} numbers"
        )
    return found
