"""TensorFlow: executors of Networks and Keras models; importing this does not import TensorFlow"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from d5ray.names.kits import added
from d5ray.networks.device import CPUDevice, Device
from d5ray.networks.executors.precision import FULL, check_offered
from d5ray.networks.layers.layer_shapes import Shape
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    from d5ray.frameworks.labelled_executor import LabelledExecutor
    from d5ray.frameworks.tensorflow.graph_executor import TensorFlowGraphExecutor
    from d5ray.frameworks.tensorflow.keras_executor import KerasExecutor
    from d5ray.frameworks.tensorflow.native_executor import KerasNativeExecutor
    from d5ray.networks.events.event import GraphEvent
    from d5ray.networks.network import Network
    from d5ray.operators.collectives import Collectives
    from d5ray.ops.custom.tensorflow_operation import TensorflowOperation

__getattr__ = added(__name__)
PRECISIONS = (*FULL, "bfloat16")


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
    """The Network of a Keras model in training: Dropout drops, moving statistics are `state`."""
    from d5ray.frameworks.tensorflow import export  # noqa: PLC0415 - when it is asked for

    return export.exported(model, training=True)


def from_onnx(
    network: "str | PathLike[str] | bytes | Network",
    device: Device = CPUDevice(),  # noqa: B008 - frozen data
    events: "GraphEvent | Sequence[GraphEvent]" = (),
    *,
    trained: Iterable[str] | None = None,
    seed: int = 0,
    collectives: "Collectives | None" = None,
    products: str | None = None,
) -> "TensorFlowGraphExecutor":
    """The executor of a Network, or of an ONNX file; see `GraphExecutor`.

    products: "bfloat16" rounds what training passes multiply in matrix products and convolutions of float32.
    Raises `ConfigurationError` where TensorFlow is not installed, or has no GPU that is asked for.
    """
    from d5ray.frameworks.tensorflow.graph_executor import TensorFlowGraphExecutor  # noqa: PLC0415 - imports it
    from d5ray.networks.loading import as_network  # noqa: PLC0415

    return TensorFlowGraphExecutor(
        as_network(network),
        device,
        events,
        trained=trained,
        seed=seed,
        collectives=collectives,
        products=products,
    )


def from_native(
    model: Any,
    loss: Loss | None = None,
    device: Device = CPUDevice(),  # noqa: B008 - frozen data
    events: "GraphEvent | Sequence[GraphEvent]" = (),
) -> "KerasNativeExecutor":
    """A Keras model as it is, with `inference` and `inference_and_backprop`; see `NativeExecutor`.

    loss: of the model's one output (batch, ..., classes) and the input "labels".
    """
    from d5ray.frameworks.tensorflow.native_executor import KerasNativeExecutor  # noqa: PLC0415 - imports it

    return KerasNativeExecutor(model, loss, device, events)


def from_model(
    model: Any,
    model_kwargs: Mapping[str, Any],
    *,
    sample_shape: Shape,
    classes: int,
    loss: Loss,
    seed: int,
    threads: int,
    device: Device = CPUDevice(),  # noqa: B008 - frozen data
    precision: str = "float32",
) -> "LabelledExecutor | KerasExecutor":
    """The executor that agents train with: of a Keras model, a class or function that makes one, a network by
    name, a Network, or an ONNX file.

    `Experiment(executor="tensorflow")` means this.
    The first parameters of a network by name are those that PyTorch gives it with the same seed. Flat
    parameters and gradients are NumPy's, in host memory, and copied in every pass. A Keras model computes in
    the policy `mixed_bfloat16` or `float64` of Keras under these precisions.
    """
    from d5ray.frameworks.tensorflow import build  # noqa: PLC0415 - imports TensorFlow
    from d5ray.frameworks.tensorflow.library import use_threads  # noqa: PLC0415

    check_offered(precision, PRECISIONS, "tensorflow", device)
    use_threads(threads)
    return build.executor(model, model_kwargs, sample_shape, classes, loss, seed, device, precision)


setattr(from_model, "takes_trees", True)  # noqa: B010 - of samples that are several arrays


def trained_model(
    model: Any,
    model_kwargs: Mapping[str, Any],
    tensors: Mapping[str, Any],
    *,
    sample_shape: Shape,
    classes: int,
    seed: int,
) -> Any:
    """The model that `from_model` would train, with these tensors, by its own names.

    A Keras model, or a Network where the model is one. Raises `ConfigurationError` for tensors that are
    another model's.
    """
    from d5ray.frameworks.tensorflow import build  # noqa: PLC0415 - imports TensorFlow

    return build.trained(model, model_kwargs, tensors, sample_shape, classes, seed)


def load() -> None:
    """Import everything the executor needs, so that an agent can do it while others still start."""
    from d5ray.frameworks.tensorflow import graph_executor  # noqa: F401, PLC0415 - imports TensorFlow
