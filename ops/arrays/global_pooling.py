"""GlobalAveragePool and GlobalMaxPool: over whole images"""

import math
from collections.abc import Sequence
from typing import Any, final

from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.wide import WideOperator


@final
class GlobalAveragePool(WideOperator):
    """y[n, c] = the mean of x[n, c, …], with spatial axes of size 1."""

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        return (x.mean(axis=tuple(range(2, x.ndim)), keepdims=True),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, gradient = inputs[0], gradients[0]
        assert x is not None and gradient is not None
        return (xp.broadcast_to(gradient / math.prod(x.shape[2:]), x.shape).astype(x.dtype),)


@final
class GlobalMaxPool(WideOperator):
    """y[n, c] = the greatest of x[n, c, …], with spatial axes of size 1; the first one where several are."""

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        return (x.max(axis=tuple(range(2, x.ndim)), keepdims=True),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, gradient = inputs[0], gradients[0]
        assert x is not None and gradient is not None
        flat = x.reshape(x.shape[0] * x.shape[1], math.prod(x.shape[2:]))
        result = xp.zeros_like(flat)
        result[xp.arange(flat.shape[0]), flat.argmax(axis=1)] = gradient.ravel()
        return (result.reshape(x.shape),)
