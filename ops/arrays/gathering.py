"""Operators that pick elements: Gather, GatherElements, GatherND and Compress"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, narrowed, wide
from d5ray.ops.arrays.indexed import Index, along, combine_at, rows
from d5ray.ops.arrays.known import checked_axis


class Picking(ArrayOperator):
    """y = x[index]; dx is the sum of dy over all the times that an element was picked."""

    @abstractmethod
    def index(self, xp: Any, context: NodeContext, x: Array, indices: Array) -> Index:
        """The index of the elements of x that the second input picks."""

    @final
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, indices = inputs
        assert x is not None and indices is not None
        return (xp.asarray(x[self.index(xp, context, x, indices)]),)

    @final
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), (x, indices) = gradients, inputs
        if dy is None or x is None or indices is None or not is_floating(x):
            return (None, None)
        dy = wide(dy)
        dx = xp.zeros(x.shape, dy.dtype)
        combine_at(xp, "add", dx, self.index(xp, context, x, indices), dy)
        return (narrowed(xp, dx, x), None)


@final
class Gather(Picking):
    """Slices along one axis, as `take` gives them."""

    def index(self, xp: Any, context: NodeContext, x: Array, indices: Array) -> Index:
        axis = checked_axis(context, context.attribute("axis", 0), x.ndim)
        return (*[slice(None)] * axis, indices)


@final
class GatherElements(Picking):
    """y has one element for every index; it stands in the other axes where the index stands."""

    def index(self, xp: Any, context: NodeContext, x: Array, indices: Array) -> Index:
        return along(xp, indices, checked_axis(context, context.attribute("axis", 0), x.ndim))


@final
class GatherND(Picking):
    """Slices x[b, i₁, …, iₖ], for every row of k indices in the batch b."""

    def index(self, xp: Any, context: NodeContext, x: Array, indices: Array) -> Index:
        return rows(xp, indices, context.attribute("batch_dims", 0))


@final
class Compress(ArrayOperator):
    """The slices along an axis, or the elements of all in a row, for which a condition holds."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, condition = inputs
        assert x is not None and condition is not None
        rows, index = _chosen(xp, context, x, condition)
        return (rows[index],)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), (x, condition) = gradients, inputs
        if dy is None or x is None or condition is None or not is_floating(x):
            return (None, None)
        rows, index = _chosen(xp, context, x, condition)
        dx = xp.zeros(rows.shape, x.dtype)
        dx[index] = dy
        return (dx.reshape(x.shape), None)


def _chosen(xp: Any, context: NodeContext, x: Array, condition: Array) -> tuple[Array, Index]:
    """x, in a row where no axis is named, and the index of what is chosen of it."""
    axis = context.attribute("axis")
    x, axis = (x.reshape(-1), 0) if axis is None else (x, checked_axis(context, axis, x.ndim))
    return x, (*[slice(None)] * axis, xp.nonzero(condition)[0])


OPERATORS: Mapping[str, ArrayOperator] = {
    "Compress": Compress(),
    "Gather": Gather(),
    "GatherElements": GatherElements(),
    "GatherND": GatherND(),
}
