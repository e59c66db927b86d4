"""Operators that write elements: ScatterElements and ScatterND, with their reductions"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, narrowed, wide
from d5ray.ops.arrays.formula import silently
from d5ray.ops.arrays.indexed import Index, along, combine_at, rows
from d5ray.ops.arrays.known import checked_axis

REDUCTIONS = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}  # ONNX's names, NumPy's


class Scattering(ArrayOperator):
    """y = x, and then y[index] ∘= updates for all of them; ∘ is the attribute `reduction`.

    Without a reduction an update takes the place of what was there, and no place may be named twice.
    """

    @abstractmethod
    def index(self, xp: Any, context: NodeContext, x: Array, indices: Array) -> Index:
        """The places to which the updates go."""

    @final
    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, indices, updates = inputs
        assert x is not None and indices is not None and updates is not None
        index, reduction = self.index(xp, context, x, indices), _reduction(context)
        y = xp.array(wide(x))
        if reduction == "none":
            y[index] = wide(updates)
        else:
            combine_at(xp, REDUCTIONS[reduction], y, index, wide(updates))
        return (narrowed(xp, y, x),)

    @final
    @silently
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), (x, indices, updates) = gradients, inputs
        if dy is None or x is None or indices is None or updates is None or not is_floating(x):
            return (None, None, None)
        index, reduction = self.index(xp, context, x, indices), _reduction(context)
        dx, d_updates = _DERIVATIVES[reduction](xp, wide(dy), wide(x), index, wide(updates), wide(outputs[0]))
        return (narrowed(xp, dx, x), None, narrowed(xp, d_updates, x))


def _reduction(context: NodeContext) -> str:
    reduction = context.attribute("reduction", "none")
    if reduction not in _DERIVATIVES:
        raise ConfigurationError(
            f"the node {context.node} asks for the reduction {reduction!r}: there are "
            f"{', '.join(_DERIVATIVES)}"
        )
    return str(reduction)


def replaced(xp: Any, dy: Array, x: Array, index: Index, updates: Array, y: Array) -> tuple[Array, Array]:
    """The gradients where elements were replaced: dx is 0 there, and the updates get dy from there."""
    dx = dy.copy()
    dx[index] = 0
    return dx, dy[index]


def added(xp: Any, dy: Array, x: Array, index: Index, updates: Array, y: Array) -> tuple[Array, Array]:
    """The gradients where updates were added: dx is dy, and the updates get dy from there."""
    return dy, dy[index]


def multiplied(xp: Any, dy: Array, x: Array, index: Index, updates: Array, y: Array) -> tuple[Array, Array]:
    """Every factor's gradient is dy times the product of the others: none of which may be 0, unless it is."""
    zeros = (x == 0).astype(x.dtype)  # how many of the factors that meet at a place are 0
    combine_at(xp, "add", zeros, index, (updates == 0).astype(x.dtype))
    product = xp.where(x == 0, 1, x)  # of those that are not
    combine_at(xp, "multiply", product, index, xp.where(updates == 0, 1, updates))

    def others(factor: Array, zeros: Array, product: Array) -> Array:
        is_zero = factor == 0
        return xp.where(zeros > is_zero, 0, product / xp.where(is_zero, 1, factor))

    return dy * others(x, zeros, product), dy[index] * others(updates, zeros[index], product[index])


def extreme(xp: Any, dy: Array, x: Array, index: Index, updates: Array, y: Array) -> tuple[Array, Array]:
    """The gradients of an extreme: elements that are equal to it have equal shares."""
    from_x, from_updates = x == y, updates == y[index]
    count = from_x.astype(x.dtype)
    combine_at(xp, "add", count, index, from_updates.astype(x.dtype))
    share = dy / count
    return xp.where(from_x, share, 0), xp.where(from_updates, share[index], 0)


_DERIVATIVES = {"none": replaced, "add": added, "mul": multiplied, "max": extreme, "min": extreme}


@final
class ScatterElements(Scattering):
    """y = x with one update for every index; it stands in the other axes where the index stands."""

    def index(self, xp: Any, context: NodeContext, x: Array, indices: Array) -> Index:
        return along(xp, indices, checked_axis(context, context.attribute("axis", 0), x.ndim))


@final
class ScatterND(Scattering):
    """Slices y[i₁, …, iₖ], for every row of k indices."""

    def index(self, xp: Any, context: NodeContext, x: Array, indices: Array) -> Index:
        return rows(xp, indices)


OPERATORS: Mapping[str, ArrayOperator] = {"ScatterElements": ScatterElements(), "ScatterND": ScatterND()}
