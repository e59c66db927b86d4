"""The operators through TensorFlow's own functions; importing this imports TensorFlow."""

from collections.abc import Mapping

from d5ray.operators.nodes.kernel_factory import Builder, Built
from d5ray.operators.nodes.node_context import Site
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
    quantization,
    recurrent,
    reductions,
    regions,
    resizing,
    selection,
    sequences,
    sets,
    shapes,
    softmaxes,
    spectra,
)
from d5ray.ops.tensorflow.library import tf

_BUILDERS: Mapping[str, Builder] = {
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
    **quantization.BUILDERS,
    **recurrent.BUILDERS,
    **reductions.BUILDERS,
    **regions.BUILDERS,
    **resizing.BUILDERS,
    **selection.BUILDERS,
    **sequences.BUILDERS,
    **sets.BUILDERS,
    **shapes.BUILDERS,
    **softmaxes.BUILDERS,
    **spectra.BUILDERS,
}


def _as_written(builder: Builder) -> Builder:
    """A builder whose results AutoGraph does not rewrite when a `tf.function` traces them."""

    def build(site: Site) -> Built:
        return tf.autograph.experimental.do_not_convert(builder(site))  # type: ignore[no-any-return]

    return build


BUILDERS: Mapping[str, Builder] = {name: _as_written(builder) for name, builder in _BUILDERS.items()}
