"""Cast, CastLike and BitCast"""

from collections.abc import Mapping

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.kernel_factory import Builder, Built
from d5ray.operators.nodes.node_context import Site
from d5ray.ops.arrays import casting as reference
from d5ray.ops.arrays.element_types import onnx_type
from d5ray.ops.tensorflow.held import HOLDERS
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.reference import by_reference
from d5ray.ops.tensorflow.tensors import Tensor


def _cast(site: Site) -> Built:
    target = onnx_type(site, site.required("to"))
    if target.name in HOLDERS:
        return by_reference(reference.Cast())(site)
    return lambda x: tf.cast(x, target)


def _cast_like(site: Site) -> Built:
    like = site.inputs[1] if len(site.inputs) > 1 else None
    if like is not None and like.dtype.name in HOLDERS:
        return by_reference(reference.CastLike())(site)

    def call(x: Tensor, like: Tensor) -> Tensor:
        if like.dtype.name in HOLDERS:  # of a tensor that no network holds
            raise ConfigurationError(
                f"the node {site.node} casts to {like.dtype.name}, whose numbers TensorFlow holds in other "
                "types: say of which type its inputs are, as a network does"
            )
        return tf.cast(x, like.dtype)

    return call


BUILDERS: Mapping[str, Builder] = {
    "BitCast": by_reference(reference.BitCast()),
    "Cast": _cast,
    "CastLike": _cast_like,
}
