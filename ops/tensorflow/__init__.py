"""The operators through TensorFlow's own functions; importing this imports TensorFlow."""

from collections.abc import Mapping

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.arrays import OPERATORS
from d5ray.ops.catalogue import GROUPS, tables
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.reference import by_reference

REFERRED = ("quantization", "regions", "sequences", "sets", "spectra")  # TensorFlow has no functions for them

_BUILDERS: Mapping[str, KernelFactory] = {
    **{name: by_reference(OPERATORS[name]) for group in REFERRED for name in GROUPS[group]},
    **tables(__name__, "FACTORIES"),
}


def _as_written(builder: KernelFactory) -> KernelFactory:
    """A kernel factory whose results AutoGraph does not rewrite when a `tf.function` traces them."""

    def build(context: NodeContext) -> Kernel:
        return tf.autograph.experimental.do_not_convert(builder(context))  # type: ignore[no-any-return]

    return build


FACTORIES: Mapping[str, KernelFactory] = {name: _as_written(builder) for name, builder in _BUILDERS.items()}
