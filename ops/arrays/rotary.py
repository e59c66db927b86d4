"""RotaryEmbedding: pairs of features turned by an angle that grows with the position"""

from collections.abc import Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.wide import WideOperator, optional


@final
class RotaryEmbedding(WideOperator):
    """(y₁, y₂) = (cos · x₁ − sin · x₂, sin · x₁ + cos · x₂)   (Su et al., arXiv:2104.09864).

    x (B, S, heads·D) with num_heads, or (B, heads, S, D); the first rotary_embedding_dim features of each
    head are turned, all where it is 0. x₁ and x₂ are their halves, or every second one if interleaved. cos
    and sin (positions, turned / 2) with position_ids (B, S), or (B, S, turned / 2) without.
    """

    needs = 3

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, heads = inputs[0], _heads(context, inputs[0])
        cosine, sine = _angles(context, inputs, heads)
        y = heads.copy()
        first, second = _pairs(context, heads)
        y_first, y_second = _pairs(context, y)
        y_first[...] = cosine * first - sine * second
        y_second[...] = sine * first + cosine * second
        return (_as_given(y, x),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, heads, gradient = inputs[0], _heads(context, inputs[0]), _heads(context, gradients[0])
        cosine, sine = _angles(context, inputs, heads)
        of_x = gradient.copy()
        (first, second), (g_first, g_second) = _pairs(context, heads), _pairs(context, gradient)
        of_first, of_second = _pairs(context, of_x)
        of_first[...] = cosine * g_first + sine * g_second
        of_second[...] = cosine * g_second - sine * g_first
        of_cosine = (g_first * first + g_second * second).sum(axis=1)  # over the heads
        of_sine = (g_second * first - g_first * second).sum(axis=1)
        if (positions := optional(inputs, 3)) is not None:
            of_cosine, of_sine = (
                _at_positions(xp, each, positions, table)
                for each, table in ((of_cosine, inputs[1]), (of_sine, inputs[2]))
            )
        return (_as_given(of_x, x), of_cosine, of_sine, None)[: len(inputs)]


def _heads(context: NodeContext, x: Array) -> Array:
    """(B, heads, S, D), a view."""
    if x.ndim == 4:
        return x
    count = int(context.attribute("num_heads", 0))
    if count < 1 or x.shape[2] % count:
        raise ConfigurationError(
            f"{context.node} has num_heads {count} for x of {x.shape}: it must divide the last axis"
        )
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def _as_given(heads: Array, x: Array) -> Array:
    return heads if x.ndim == 4 else heads.swapaxes(1, 2).reshape(x.shape)


def _pairs(context: NodeContext, heads: Array) -> tuple[Array, Array]:
    """Views (B, heads, S, turned / 2) of the features that turn together."""
    turned = int(context.attribute("rotary_embedding_dim", 0)) or heads.shape[-1]
    if context.attribute("interleaved", 0):
        return heads[..., 0:turned:2], heads[..., 1:turned:2]
    return heads[..., : turned // 2], heads[..., turned // 2 : turned]


def _angles(context: NodeContext, inputs: Sequence[Array | None], heads: Array) -> tuple[Array, Array]:
    """The cosines and sines (B, 1, S, turned / 2)."""
    cosine, sine, positions = inputs[1], inputs[2], optional(inputs, 3)
    assert cosine is not None and sine is not None
    half = (int(context.attribute("rotary_embedding_dim", 0)) or heads.shape[-1]) // 2
    if cosine.shape[-1] != half or sine.shape != cosine.shape:
        raise ConfigurationError(
            f"{context.node} has cosines of {cosine.shape} and sines of {sine.shape}: with {2 * half} "
            f"features turned their last axis must be {half}"
        )
    if positions is not None:
        cosine, sine = cosine[positions], sine[positions]
    return cosine[:, None], sine[:, None]


def _at_positions(xp: Any, gradient: Array, positions: Array, table: Array | None) -> Array:
    assert table is not None
    result = xp.zeros_like(table)
    xp.add.at(result, positions, gradient)
    return result
