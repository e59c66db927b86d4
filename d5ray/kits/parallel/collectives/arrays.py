"""Collectives and one part of a Dropout over an array module, NumPy or CuPy"""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from d5ray.kits.parallel.collectives import nodes as types
from d5ray.kits.parallel.collectives.exchanges import Exchange, Exchanges
from d5ray.kits.parallel.collectives.nodes import group_of
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.dropout import ratio_of


@final
class ArrayExchanges(Exchanges):
    """Exchanges of arrays of NumPy or CuPy. xp: the array module."""

    def __init__(self, xp: Any, context: NodeContext) -> None:
        super().__init__(context)
        self._xp = xp

    def _copied(self, x: Array) -> Array:
        return self._xp.array(x, order="C")

    def _turned(self, x: Array, order: tuple[int, ...]) -> Array:
        return self._xp.array(x.transpose(order), order="C")

    def _joined(self, parts: Sequence[Array]) -> Array:
        return self._xp.concatenate(parts, axis=1)

    def _empty(self, shape: tuple[int, ...], like: Array) -> Array:
        return self._xp.empty(shape, like.dtype)


@final
class Collective(ArrayOperator):
    """The operator of a node that exchanges."""

    def __init__(self, context: NodeContext) -> None:
        self._site = context
        group_of(context)
        self._pair = ArrayExchanges(np, context).pair

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        return (self._of(xp)[0](inputs[0]),)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        return (None if gradients[0] is None else self._of(xp)[1](gradients[0]),)

    def _of(self, xp: Any) -> tuple[Exchange, Exchange]:
        return self._pair if xp is np else ArrayExchanges(xp, self._site).pair


@final
class PartOfDropout(ArrayOperator):
    """y = mask · x / (1 − ratio) of x (…, part, …): the mask is drawn for all parts, and this one's taken."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x: Array = inputs[0]
        ratio = ratio_of(context, inputs)
        if ratio == 0:
            return (x, None)
        exchanges = ArrayExchanges(xp, context)
        drawn = context.random.random(exchanges.whole_shape(x.shape)) >= ratio
        scale = exchanges.part(drawn).astype(x.dtype)
        if ratio < 1:
            scale *= 1 / (1 - ratio)
        return (x * scale, scale)

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        gradient, scale = gradients[0], outputs[1]
        found = gradient if gradient is None or scale is None else gradient * scale
        return (found, None, None)[: len(inputs)]


def implementation(context: NodeContext) -> ArrayOperator:
    """A collective, or one part of a Dropout, as an operator over arrays of NumPy or CuPy."""
    return PartOfDropout() if context.node.type == types.DROPOUT else Collective(context)
