"""Cast, CastLike and BitCast"""

from collections.abc import Mapping

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.arrays import casting as reference
from d5ray.ops.arrays.element_types import onnx_type
from d5ray.ops.tensorflow.held import HOLDERS
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.reference import by_reference
from d5ray.ops.tensorflow.tensors import Tensor


def _cast(context: NodeContext) -> Kernel:
    target = onnx_type(context, context.required("to"))
    if target.name in HOLDERS:
        return by_reference(reference.Cast())(context)
    return lambda x: tf.cast(x, target)


def _cast_like(context: NodeContext) -> Kernel:
    like = context.inputs[1] if len(context.inputs) > 1 else None
    if like is not None and like.dtype.name in HOLDERS:
        return by_reference(reference.CastLike())(context)

    def call(x: Tensor, like: Tensor) -> Tensor:
        if like.dtype.name in HOLDERS:  # of a tensor that no network holds
            raise ConfigurationError(
                f"the node {context.node} casts to {like.dtype.name}, whose numbers TensorFlow holds in "
                "other types: say of which type its inputs are, as a network does"
            )
        return tf.cast(x, like.dtype)

    return call


FACTORIES: Mapping[str, KernelFactory] = {
    "BitCast": by_reference(reference.BitCast()),
    "Cast": _cast,
    "CastLike": _cast_like,
}
