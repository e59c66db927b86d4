"""TensorFlow; importing this does not import tensorflow."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d5ray.networks.network import Network
    from d5ray.ops.custom.tensorflow_operation import TensorflowOperation


def custom_op(op: Any) -> "TensorflowOperation":
    """The operator as an operation of TensorFlow, which gradient tapes and `tf.function` know.

    op: an object of a class derived from `CustomPythonOp`, or what `compile_custom_cppop` gives.
    Raises `ConfigurationError` where TensorFlow is not installed.
    """
    from d5ray.ops.custom.arrays import instance_of  # noqa: PLC0415 - taken when used
    from d5ray.ops.custom.tensorflow_operation import TensorflowOperation  # noqa: PLC0415 - imports tensorflow

    return TensorflowOperation(instance_of(op))


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
