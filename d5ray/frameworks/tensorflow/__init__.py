"""TensorFlow."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d5ray.networks.network import Network


def network_of(model: Any) -> "Network":
    """A Keras model, functional or Sequential, as a Network, as it evaluates.

    Weights keep Keras's names; their axes are as ONNX has them. Inputs and outputs are as Keras has them,
    with channels last. Raises `ConfigurationError` that lists all layers that cannot be nodes.
    """
    from d5ray.frameworks.tensorflow import export  # noqa: PLC0415 - when it is asked for

    return export.exported(model, training=False)


def training_network_of(model: Any) -> "Network":
    """The same as `network_of`, as the model trains: Dropout drops, moving statistics are `state`."""
    from d5ray.frameworks.tensorflow import export  # noqa: PLC0415 - when it is asked for

    return export.exported(model, training=True)
