"""Parts of a tensor, and tensors of parts: Slice, Split and Concat"""

from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating
from d5ray.ops.arrays.known import checked_axis, numbers, required_numbers


@final
class Slice(ArrayOperator):
    """x[start:end:step] in the named axes; a view. What lies outside is moved to the nearest end."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        return (x[_slices(context, inputs, x.shape)],)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), x = gradients, inputs[0]
        rest = [None] * (len(inputs) - 1)
        if dy is None or x is None or not is_floating(x):
            return (None, *rest)
        dx = xp.zeros(x.shape, x.dtype)
        dx[_slices(context, inputs, x.shape)] = dy
        return (dx, *rest)


def _slices(
    context: NodeContext, inputs: Sequence[Array | None], shape: tuple[int, ...]
) -> tuple[slice, ...]:
    starts = required_numbers(context, inputs, 1, "starts")
    ends = required_numbers(context, inputs, 2, "ends")
    axes = numbers(context, inputs, 3) or range(len(starts))
    steps = numbers(context, inputs, 4) or [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ConfigurationError(
            f"the node {context.node} has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and "
            f"{len(steps)} steps: it must have equally many of each"
        )
    slices = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = checked_axis(context, axis, len(shape))
        slices[axis] = _slice(start, end, step, shape[axis])
    return tuple(slices)


def _slice(start: int, end: int, step: int, size: int) -> slice:
    """A slice as Python has it, but that a start before the first element is moved to it backwards too."""
    if step > 0:
        return slice(start, end, step)
    start = min(max(start + size if start < 0 else start, 0), size - 1)
    end = min(max(end + size if end < 0 else end, -1), size - 1)
    return slice(start, None if end < 0 else end, step)


@final
class Split(ArrayOperator):
    """Parts along an axis, of the given sizes, or equal ones of which the last may be smaller; views."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        axis = checked_axis(context, context.attribute("axis", 0), x.ndim)
        found, start = [], 0
        for size in _sizes(context, inputs, x.shape[axis]):
            found.append(x[(*[slice(None)] * axis, slice(start, start + size))])
            start += size
        return tuple(found)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x = inputs[0]
        rest = [None] * (len(inputs) - 1)
        if x is None or not is_floating(x) or all(dy is None for dy in gradients):
            return (None, *rest)
        axis = checked_axis(context, context.attribute("axis", 0), x.ndim)
        parts = [
            xp.zeros(y.shape, y.dtype) if dy is None else dy for dy, y in zip(gradients, outputs, strict=True)
        ]
        return (xp.concatenate(parts, axis=axis), *rest)


def _sizes(context: NodeContext, inputs: Sequence[Array | None], whole: int) -> list[int]:
    sizes = numbers(context, inputs, 1)
    if sizes is None:
        count = context.attribute("num_outputs", len(context.node.outputs))
        largest = -(-whole // count)
        return [max(0, min(largest, whole - largest * part)) for part in range(count)]
    if sum(sizes) != whole:
        raise ConfigurationError(
            f"the node {context.node} splits {whole} elements into parts of {tuple(sizes)}: they must add up"
        )
    return sizes


@final
class Concat(ArrayOperator):
    """The inputs joined along an axis."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        return (xp.concatenate(list(inputs), axis=context.required("axis")),)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,) = gradients
        if dy is None or not is_floating(outputs[0]):
            return (None,) * len(inputs)
        axis = checked_axis(context, context.required("axis"), dy.ndim)
        found, start = [], 0
        for x in inputs:
            assert x is not None
            found.append(dy[(*[slice(None)] * axis, slice(start, start + x.shape[axis]))])
            start += x.shape[axis]
        return tuple(found)


OPERATORS: Mapping[str, ArrayOperator] = {"Concat": Concat(), "Slice": Slice(), "Split": Split()}
