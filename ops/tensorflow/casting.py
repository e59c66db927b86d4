"""Cast and CastLike"""

from collections.abc import Mapping
from typing import Any

from d5ray.errors import ConfigurationError
from d5ray.operators.builder import Builder, Built
from d5ray.operators.site import Site
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, type_of


def _cast(site: Site) -> Built:
    target = type_of(site.required("to"))
    _check(site, target)
    return lambda x: tf.cast(x, target)


def _check(site: Site, target: Any) -> None:
    """Raise `ConfigurationError` for types to which TensorFlow does not cast as ONNX does."""
    if target == tf.string or (target.is_floating and target.size < 2):
        raise ConfigurationError(
            f"the node {site.node} casts to {target.name}, which TensorFlow does by rules of its own: "
            "choose another type, or the framework 'numpy'"
        )


def _cast_like(site: Site) -> Built:
    def call(x: Tensor, like: Tensor) -> Tensor:
        _check(site, like.dtype)
        return tf.cast(x, like.dtype)

    return call


BUILDERS: Mapping[str, Builder] = {"Cast": _cast, "CastLike": _cast_like}
