"""Operators of one's own as implementations of nodes, and as operations of the frameworks."""

from typing import TYPE_CHECKING, Any

from d5ray.operators.nodes.kernel_factory import Built
from d5ray.operators.nodes.node_context import Site

if TYPE_CHECKING:
    from d5ray.ops.custom.arrays import CustomArrayOperator


def implementation(framework: str, site: Site) -> Any:
    """An `ArrayOperator` for numpy and cupy, what is `Built` of the site for torch and tensorflow.

    Raises `ConfigurationError`, naming the node, where nothing is registered for it.
    """
    if framework == "torch":
        return torch_builder(site)
    return tensorflow_builder(site) if framework == "tensorflow" else array_operator(site)


def array_operator(site: Site) -> "CustomArrayOperator":
    """The registered operator of the site's node, in terms of an array module.

    Raises `ConfigurationError`, naming the node, where nothing is registered for it.
    """
    from d5ray.ops.custom.arrays import CustomArrayOperator  # noqa: PLC0415 - beside the other two

    return CustomArrayOperator(site.node)


def torch_builder(site: Site) -> Built:
    """The registered operator of the site's node as a function of PyTorch; a `Builder`."""
    from d5ray.ops.custom.torch_operation import built  # noqa: PLC0415 - imports torch

    return built(site)


def tensorflow_builder(site: Site) -> Built:
    """The registered operator of the site's node as a function of TensorFlow; a `Builder`."""
    from d5ray.ops.custom.tensorflow_operation import built  # noqa: PLC0415 - imports tensorflow

    return built(site)
