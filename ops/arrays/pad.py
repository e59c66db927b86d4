"""Pad: elements are put before and behind those of every axis, or taken away"""

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, narrowed, wide
from d5ray.ops.arrays.indexed import combine_at
from d5ray.ops.arrays.known import checked_axis, numbers, required_numbers

Widths = list[tuple[int, int]]  # for every axis, how many stand before and behind; negative: are taken away


@final
class Pad(ArrayOperator):
    """The input padded with a constant or its own elements: the nearest, mirrored, or in circles (wrap)."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        widths, mode = _widths(context, inputs, x.ndim), context.attribute("mode", "constant")
        if mode != "constant":
            return (_continued(xp, context, mode, x, widths),)
        (value,) = numbers(context, inputs, 2) or (0,)
        shape = tuple(size + sum(width) for size, width in zip(x.shape, widths, strict=True))
        y = xp.full(shape, value, x.dtype)
        y[_inside(widths)] = x[_kept(widths)]
        return (y,)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), x = gradients, inputs[0]
        found: list[Array | None] = [None] * len(inputs)
        if dy is None or x is None or not is_floating(x):
            return tuple(found)
        widths, mode = _widths(context, inputs, x.ndim), context.attribute("mode", "constant")
        if mode != "constant":
            return (narrowed(xp, _folded(xp, context, mode, wide(dy), x.shape, widths), x), *found[1:])
        dx = xp.zeros(x.shape, x.dtype)
        dx[_kept(widths)] = dy[_inside(widths)]
        if len(inputs) > 2 and inputs[2] is not None:
            outside = xp.array(wide(dy))
            outside[_inside(widths)] = 0
            found[2] = narrowed(xp, outside.sum().reshape(inputs[2].shape), x)
        return (dx, *found[1:])


def _continued(xp: Any, context: NodeContext, mode: str, x: Array, widths: Widths) -> Array:
    """x with elements of its own around it."""
    for axis, width in enumerate(widths):
        if width != (0, 0):
            x = x.take(xp.asarray(_sources(context, mode, x.shape[axis], width)), axis=axis)
    return x


def _folded(
    xp: Any, context: NodeContext, mode: str, dy: Array, shape: tuple[int, ...], widths: Widths
) -> Array:
    """The gradient of every element of x: the sum over the places to which it went."""
    for axis, width in enumerate(widths):
        if width != (0, 0):
            sources = xp.asarray(_sources(context, mode, shape[axis], width))
            part = xp.zeros((*dy.shape[:axis], shape[axis], *dy.shape[axis + 1 :]), dy.dtype)
            combine_at(xp, "add", part, (*[slice(None)] * axis, sources), dy)
            dy = part
    return dy


def _widths(context: NodeContext, inputs: Sequence[Array | None], rank: int) -> Widths:
    pads = required_numbers(context, inputs, 1, "pads")
    named = numbers(context, inputs, 3)
    axes = range(rank) if named is None else [checked_axis(context, axis, rank) for axis in named]
    if len(pads) != 2 * len(axes):
        raise ConfigurationError(
            f"the node {context.node} has {len(pads)} pads for {len(axes)} axes: it must have two each, "
            "first all that stand before and then all that stand behind"
        )
    widths = [(0, 0)] * rank
    for axis, before, behind in zip(axes, pads, pads[len(axes) :], strict=False):
        widths[axis] = (before, behind)
    return widths


def _inside(widths: Widths) -> tuple[slice, ...]:
    """The slices of the output that hold the input's elements."""
    return tuple(slice(max(before, 0), -behind if behind > 0 else None) for before, behind in widths)


def _kept(widths: Widths) -> tuple[slice, ...]:
    """The slices of the input whose elements are in the output."""
    return tuple(slice(max(-before, 0), behind if behind < 0 else None) for before, behind in widths)


def _sources(context: NodeContext, mode: str, size: int, width: tuple[int, int]) -> "np.ndarray[Any, Any]":
    """The element along an axis that each one of the output is taken from."""
    first = max(-width[0], 0)  # what is cut off is not mirrored
    size -= first + max(-width[1], 0)
    places = np.arange(-max(width[0], 0), size + max(width[1], 0))
    if mode == "edge":
        return first + places.clip(0, size - 1)
    if mode == "wrap":
        return first + places % size
    if mode == "reflect":  # there and back again, the ends once each
        period = max(2 * (size - 1), 1)
        return first + size - 1 - np.abs(places % period - (size - 1))
    raise ConfigurationError(
        f"the node {context.node} has the mode {mode!r}: there are constant, edge, reflect and wrap"
    )


OPERATORS: Mapping[str, ArrayOperator] = {"Pad": Pad()}
