"""The operators through TensorFlow's own functions; importing this imports TensorFlow."""

from collections.abc import Mapping

from d5ray.operators.nodes.kernel_factory import Kernel, KernelFactory
from d5ray.operators.nodes.node_context import NodeContext
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

_BUILDERS: Mapping[str, KernelFactory] = {
    **activations.FACTORIES,
    **attention.FACTORIES,
    **casting.FACTORIES,
    **comparison.FACTORIES,
    **constants.FACTORIES,
    **convolution.FACTORIES,
    **dropout.FACTORIES,
    **elementwise.FACTORIES,
    **losses.FACTORIES,
    **normalization.FACTORIES,
    **pooling.FACTORIES,
    **products.FACTORIES,
    **quantization.FACTORIES,
    **recurrent.FACTORIES,
    **reductions.FACTORIES,
    **regions.FACTORIES,
    **resizing.FACTORIES,
    **selection.FACTORIES,
    **sequences.FACTORIES,
    **sets.FACTORIES,
    **shapes.FACTORIES,
    **softmaxes.FACTORIES,
    **spectra.FACTORIES,
}


def _as_written(builder: KernelFactory) -> KernelFactory:
    """A kernel factory whose results AutoGraph does not rewrite when a `tf.function` traces them."""

    def build(context: NodeContext) -> Kernel:
        return tf.autograph.experimental.do_not_convert(builder(context))  # type: ignore[no-any-return]

    return build


FACTORIES: Mapping[str, KernelFactory] = {name: _as_written(builder) for name, builder in _BUILDERS.items()}
