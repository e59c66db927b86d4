"""LpNormalization and LRN: division by the size of what stands around"""

from collections.abc import Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.nodes.node_context import Site
from d5ray.ops.arrays.wide import WideOperator, kept, outputs_and_kept


@final
class LpNormalization(WideOperator):
    """y = x / ‖x‖ₚ along an axis, p 1 or 2; 0 where the norm is 0, with no gradient there."""

    def compute(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        axis, p = int(site.attribute("axis", -1)), int(site.attribute("p", 2))
        if p not in (1, 2):
            raise ConfigurationError(f"{site.node} has p {p}: it must be 1 or 2")
        norm = abs(x).sum(axis=axis, keepdims=True) if p == 1 else xp.sqrt(
            xp.square(x).sum(axis=axis, keepdims=True)
        )  # fmt: skip
        return outputs_and_kept(site, (xp.where(norm == 0, 0, x / norm).astype(x.dtype, copy=False),), norm)

    def differentiate(
        self,
        xp: Any,
        site: Site,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, y, gradient, (norm,) = inputs[0], outputs[0], gradients[0], kept(site, outputs)
        assert x is not None and gradient is not None
        axis, p = int(site.attribute("axis", -1)), int(site.attribute("p", 2))
        slope = xp.sign(x) if p == 1 else y  # of the norm
        inner = gradient - slope * (gradient * y).sum(axis=axis, keepdims=True)
        return (xp.where(norm == 0, 0, inner / norm).astype(x.dtype, copy=False),)


@final
class LRN(WideOperator):
    """y[n, c] = x[n, c] · s[n, c]^−beta, s[n, c] = bias + alpha / size · Σ x[n, i]².

    The sum goes over the channels i from c − ⌊(size − 1)/2⌋ to c + ⌈(size − 1)/2⌉ (Krizhevsky et al., 2012).
    """

    def compute(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        size, alpha, beta, bias = _constants(site)
        before = (size - 1) // 2
        s = bias + alpha / size * _neighbours(xp, xp.square(x), before, size - 1 - before)
        return outputs_and_kept(site, (x * s**-beta,), s)

    def differentiate(
        self,
        xp: Any,
        site: Site,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, y, gradient, (s,) = inputs[0], outputs[0], gradients[0], kept(site, outputs)
        assert x is not None and gradient is not None
        size, alpha, beta, _ = _constants(site)
        before = (size - 1) // 2
        shared = _neighbours(xp, gradient * y / s, size - 1 - before, before)
        return (gradient * s**-beta - 2 * alpha * beta / size * x * shared,)


def _constants(site: Site) -> tuple[int, float, float, float]:
    alpha, beta, bias = (
        site.attribute("alpha", 1e-4),
        site.attribute("beta", 0.75),
        site.attribute("bias", 1.0),
    )
    return int(site.required("size")), alpha, beta, bias


def _neighbours(xp: Any, x: Array, before: int, after: int) -> Array:
    """The sum over the channels from c − before to c + after, for every channel c."""
    total, channels = x.copy(), x.shape[1]
    for distance in range(1, min(before, channels - 1) + 1):
        total[:, distance:] += x[:, :-distance]
    for distance in range(1, min(after, channels - 1) + 1):
        total[:, :-distance] += x[:, distance:]
    return total
