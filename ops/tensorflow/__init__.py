"""The operators through TensorFlow's own functions; importing this imports TensorFlow."""

from collections.abc import Mapping

from d5ray.operators.builder import Builder
from d5ray.ops.tensorflow import (
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

BUILDERS: Mapping[str, Builder] = {
    **activations.BUILDERS,
    **attention.BUILDERS,
    **casting.BUILDERS,
    **comparison.BUILDERS,
    **constants.BUILDERS,
    **convolution.BUILDERS,
    **dropout.BUILDERS,
    **elementwise.BUILDERS,
    **losses.BUILDERS,
    **normalization.BUILDERS,
    **pooling.BUILDERS,
    **products.BUILDERS,
    **recurrent.BUILDERS,
    **reductions.BUILDERS,
    **resizing.BUILDERS,
    **selection.BUILDERS,
    **shapes.BUILDERS,
    **softmaxes.BUILDERS,
}
