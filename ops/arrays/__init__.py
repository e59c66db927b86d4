"""The operators in terms of an array module: NumPy and CuPy, forwards and backwards."""

from collections.abc import Mapping

from d5ray.operators.array_operator import ArrayOperator
from d5ray.ops.arrays import (
    activations,
    attention,
    casting,
    comparison,
    constants,
    convolution,
    dropout,
    elementwise,
    losses,
    normalization,
    pooling,
    products,
    recurrent,
    reductions,
    resizing,
    selection,
    shapes,
    softmaxes,
)

OPERATORS: Mapping[str, ArrayOperator] = {
    **activations.OPERATORS,
    **attention.OPERATORS,
    **casting.OPERATORS,
    **comparison.OPERATORS,
    **constants.OPERATORS,
    **convolution.OPERATORS,
    **dropout.OPERATORS,
    **elementwise.OPERATORS,
    **losses.OPERATORS,
    **normalization.OPERATORS,
    **pooling.OPERATORS,
    **products.OPERATORS,
    **recurrent.OPERATORS,
    **reductions.OPERATORS,
    **resizing.OPERATORS,
    **selection.OPERATORS,
    **shapes.OPERATORS,
    **softmaxes.OPERATORS,
}
