"""Random numbers: RandomNormal, RandomUniform, and those of another tensor's shape"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, WithoutGradient
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import onnx_type

FLOAT32 = 1  # ONNX's number for it


class Random(WithoutGradient):
    """Numbers that are drawn anew at every call, or the same at every call where the node has a seed.

    The input, where the node has one, gives the shape, and the type where the node names none.
    """

    @abstractmethod
    def drawn(self, xp: Any, context: NodeContext, generator: Any, shape: Sequence[int]) -> Array:
        """Numbers in float64, of uniform ones of the generator."""

    @final
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        like = inputs[0] if inputs else None
        shape = context.required("shape") if like is None else like.shape
        number = context.attribute("dtype", FLOAT32 if like is None else None)
        dtype = like.dtype if number is None and like is not None else onnx_type(context, number)
        return (xp.asarray(self.drawn(xp, context, _generator(xp, context), tuple(shape)), dtype=dtype),)


def _generator(xp: Any, context: NodeContext) -> Any:
    seed = context.attribute("seed")
    if seed is not None:  # any number: its bits are the seed
        return xp.random.default_rng(int(np.float64(seed).view("uint64")))
    if context.random is None:
        raise ConfigurationError(
            f"the node {context.node} draws random numbers, and there is no generator: give one to its "
            "network's executor, or a seed to the node"
        )
    return context.random


@final
class UniformNumbers(Random):
    """Uniform numbers from low up to high."""

    def drawn(self, xp: Any, context: NodeContext, generator: Any, shape: Sequence[int]) -> Array:
        low, high = context.attribute("low", 0.0), context.attribute("high", 1.0)
        return low + (high - low) * generator.random(shape)


@final
class Normal(Random):
    """Normal numbers: √(−2 ln u) cos 2πv for uniform u and v   (Box and Muller, 1958)."""

    def drawn(self, xp: Any, context: NodeContext, generator: Any, shape: Sequence[int]) -> Array:
        radius = xp.sqrt(-2 * xp.log1p(-generator.random(shape)))
        direction = xp.cos(2 * math.pi * generator.random(shape))
        return context.attribute("mean", 0.0) + context.attribute("scale", 1.0) * radius * direction


OPERATORS: Mapping[str, ArrayOperator] = {
    "RandomNormal": Normal(),
    "RandomNormalLike": Normal(),
    "RandomUniform": UniformNumbers(),
    "RandomUniformLike": UniformNumbers(),
}
