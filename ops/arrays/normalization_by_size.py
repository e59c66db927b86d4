"""LpNormalization and LRN: division by the size of what stands around"""

from collections.abc import Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.wide import WideOperator, kept, outputs_and_kept


@final
class LpNormalization(WideOperator):
    """y = x / ‖x‖ₚ along an axis, p 1 or 2; 0 where the norm is 0, with no gradient there."""

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        axis, p = int(context.attribute("axis", -1)), int(context.attribute("p", 2))
        if p not in (1, 2):
            raise ConfigurationError(f"{context.node} has p {p}: it must be 1 or 2")
        norm = abs(x).sum(axis=axis, keepdims=True) if p == 1 else xp.sqrt(
            xp.square(x).sum(axis=axis, keepdims=True)
        )  # fmt: skip
        return outputs_and_kept(
            context, (xp.where(norm == 0, 0, x / norm).astype(x.dtype, copy=False),), norm
        )

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, y, gradient, (norm,) = inputs[0], outputs[0], gradients[0], kept(context, outputs)
        assert x is not None and gradient is not None
        axis, p = int(context.attribute("axis", -1)), int(context.attribute("p", 2))
        slope = xp.sign(x) if p == 1 else y  # of the norm
        inner = gradient - slope * (gradient * y).sum(axis=axis, keepdims=True)
        return (xp.where(norm == 0, 0, inner / norm).astype(x.dtype, copy=False),)


@final
class LRN(WideOperator):
    """y[n, c] = x[n, c] · s[n, c]^−beta, s[n, c] = bias + alpha / size · Σ x[n, i]².

    The sum goes over the channels i from c − ⌊(size − 1)/2⌋ to c + ⌈(size − 1)/2⌉ (Krizhevsky et al., 2012).
    """

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        size, alpha, beta, bias = _constants(context)
        before = (size - 1) // 2
        s = bias + alpha / size * _neighbours(xp, xp.square(x), before, size - 1 - before)
        return outputs_and_kept(context, (x * s**-beta,), s)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, y, gradient, (s,) = inputs[0], outputs[0], gradients[0], kept(context, outputs)
        assert x is not None and gradient is not None
        size, alpha, beta, _ = _constants(context)
        before = (size - 1) // 2
        shared = _neighbours(xp, gradient * y / s, size - 1 - before, before)
        return (gradient * s**-beta - 2 * alpha * beta / size * x * shared,)


def _constants(context: NodeContext) -> tuple[int, float, float, float]:
    alpha, beta, bias = (
        context.attribute("alpha", 1e-4),
        context.attribute("beta", 0.75),
        context.attribute("bias", 1.0),
    )
    return int(context.required("size")), alpha, beta, bias


def _neighbours(xp: Any, x: Array, before: int, after: int) -> Array:
    """The sum over the channels from c − before to c + after, for every channel c."""
    total, channels = x.copy(), x.shape[1]
    for distance in range(1, min(before, channels - 1) + 1):
        total[:, distance:] += x[:, :-distance]
    for distance in range(1, min(after, channels - 1) + 1):
        total[:, :-distance] += x[:, distance:]
    return total
