"""Along the time of sequences: ReverseSequence, and TensorScatter, which writes into a cache"""

from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating
from d5ray.ops.arrays.known import checked_axis
from d5ray.ops.arrays.wide import optional


@final
class ReverseSequence(ArrayOperator):
    """The first elements of each sequence, as many as it has, in the other order."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, lengths = inputs
        assert x is not None and lengths is not None
        return (self._reversed(xp, context, x, lengths),)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), lengths = gradients, inputs[1]
        if dy is None or lengths is None:
            return (None, None)
        return (self._reversed(xp, context, dy, lengths), None)

    def _reversed(self, xp: Any, context: NodeContext, x: Array, lengths: Array) -> Array:
        batch, time = (
            int(context.attribute(name, default)) for name, default in (("batch_axis", 1), ("time_axis", 0))
        )
        turned = xp.moveaxis(x, (batch, time), (0, 1))
        place = xp.arange(turned.shape[1])[None]
        source = xp.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)
        found = turned[xp.arange(turned.shape[0])[:, None], source]
        return xp.ascontiguousarray(xp.moveaxis(found, (0, 1), (batch, time)))


@final
class TensorScatter(ArrayOperator):
    """The cache with an update written from an index on; where the end is reached, on from the beginning.

    cache (batch, …, longest, …), update (batch, …, steps, …), index (batch,); circular or linear.
    """

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        cache, update = inputs[0], inputs[1]
        assert cache is not None and update is not None
        made = cache.copy()
        xp.moveaxis(made, self._axis(context, cache), 1)[self._places(xp, context, inputs)] = xp.moveaxis(
            update, self._axis(context, cache), 1
        )
        return (made,)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), cache = gradients, inputs[0]
        rest = [None] * (len(inputs) - 2)
        if dy is None or cache is None or not is_floating(cache):
            return (None, None, *rest)
        axis, places = self._axis(context, cache), self._places(xp, context, inputs)
        dcache = dy.copy()
        turned = xp.moveaxis(dcache, axis, 1)
        dupdate = xp.moveaxis(turned[places], 1, axis)
        turned[places] = 0
        return (dcache, xp.ascontiguousarray(dupdate), *rest)

    def _axis(self, context: NodeContext, cache: Array) -> int:
        return checked_axis(context, int(context.attribute("axis", -2)), cache.ndim)

    def _places(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> tuple[Array, Array]:
        """The places of batch and time, (batch, steps)."""
        cache, update, start = inputs[0], inputs[1], optional(inputs, 2)
        assert cache is not None and update is not None
        axis = self._axis(context, cache)
        first = xp.zeros(cache.shape[0], dtype="int64") if start is None else start
        place = first[:, None] + xp.arange(update.shape[axis])[None]
        if context.attribute("mode", "linear") == "circular":
            place = place % cache.shape[axis]
        return xp.arange(cache.shape[0])[:, None], place


OPERATORS: Mapping[str, ArrayOperator] = {
    "ReverseSequence": ReverseSequence(),
    "TensorScatter": TensorScatter(),
}
