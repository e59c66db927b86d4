"""Elements that are repeated: Expand and Tile"""

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, narrowed, wide
from d5ray.ops.arrays.formula import summed_to_shape
from d5ray.ops.arrays.known import required_numbers


@final
class Expand(ArrayOperator):
    """Broadcast against a shape: axes of size 1 are repeated, and new ones stand in front; a view."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        asked = tuple(required_numbers(context, inputs, 1, "shape"))
        try:
            shape = np.broadcast_shapes(x.shape, asked)
        except ValueError as error:
            raise ConfigurationError(
                f"the node {context.node} expands a tensor of shape {x.shape} to {asked}: counted from the "
                "end, their sizes must be equal, or one of them 1"
            ) from error
        return (xp.broadcast_to(x, shape),)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), x = gradients, inputs[0]
        if dy is None or x is None or not is_floating(x):
            return (None, None)
        return (narrowed(xp, summed_to_shape(wide(dy), x.shape), x), None)


@final
class Tile(ArrayOperator):
    """The input repeated along every axis."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        return (xp.tile(x, _repeats(context, inputs, x.ndim)),)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), x = gradients, inputs[0]
        if dy is None or x is None or not is_floating(x):
            return (None, None)
        pairs = zip(_repeats(context, inputs, x.ndim), x.shape, strict=True)
        parted = wide(dy).reshape([size for pair in pairs for size in pair])  # (r₀, n₀, r₁, n₁, …)
        return (narrowed(xp, parted.sum(axis=tuple(range(0, 2 * x.ndim, 2))), x), None)


def _repeats(context: NodeContext, inputs: Sequence[Array | None], rank: int) -> tuple[int, ...]:
    repeats = tuple(required_numbers(context, inputs, 1, "repeats"))
    if len(repeats) != rank:
        raise ConfigurationError(
            f"the node {context.node} has repeats {repeats} for a tensor with {rank} axes: it must have one "
            "each"
        )
    return repeats


OPERATORS: Mapping[str, ArrayOperator] = {"Expand": Expand(), "Tile": Tile()}
