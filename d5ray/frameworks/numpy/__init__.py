"""NumPy: `from_onnx` makes the executor of a Network, `from_model` that of a model that agents train"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from d5ray.errors import ConfigurationError
from d5ray.names.kits import added
from d5ray.networks.device import BestDevice, CPUDevice, Device
from d5ray.networks.executors.precision import FULL, check_offered
from d5ray.networks.layers.layer_shapes import Shape
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    from d5ray.frameworks.arrays.executor import ArrayExecutor
    from d5ray.frameworks.labelled_executor import LabelledExecutor
    from d5ray.networks.events.event import GraphEvent
    from d5ray.networks.network import Network
    from d5ray.operators.collectives import Collectives
    from d5ray.ops.custom.arrays import ArrayOperation

__getattr__ = added(__name__)
PRECISIONS = FULL


def custom_op(op: Any) -> "ArrayOperation":
    """The operator as a function of NumPy arrays, with `backward(grads, inputs, outputs)` for its gradients.

    op: an object of a class derived from `CustomPythonOp`, or what `compile_custom_cppop` gives.
    """
    import numpy as np  # noqa: PLC0415 - beside the other frameworks

    from d5ray.ops.custom.arrays import ArrayOperation, instance_of  # noqa: PLC0415 - taken when used

    return ArrayOperation(np, instance_of(op))


def from_onnx(
    network: "str | PathLike[str] | bytes | Network",
    device: Device = CPUDevice(),  # noqa: B008 - frozen data
    events: "GraphEvent | Sequence[GraphEvent]" = (),
    *,
    trained: Iterable[str] | None = None,
    seed: int = 0,
    collectives: "Collectives | None" = None,
) -> "ArrayExecutor":
    """The executor of a Network, or of an ONNX file; see `GraphExecutor`.

    Raises `ConfigurationError` for a device that is not the processor.
    """
    from d5ray.frameworks.arrays.executor import ArrayExecutor  # noqa: PLC0415 - when it is asked for
    from d5ray.frameworks.arrays.library import NumPy  # noqa: PLC0415
    from d5ray.networks.loading import as_network  # noqa: PLC0415

    check_device(device)
    return ArrayExecutor(
        as_network(network), NumPy(), CPUDevice(), events, trained=trained, seed=seed, collectives=collectives
    )


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
) -> "LabelledExecutor":
    """The executor that agents train with, of a network by name, a Network, or an ONNX file.

    `Experiment(executor="numpy")` means this.
    The first parameters of a network by name are those that PyTorch gives it with the same seed.
    """
    import threadpoolctl  # noqa: PLC0415 - when it is asked for

    from d5ray.frameworks.arrays.library import NumPy  # noqa: PLC0415
    from d5ray.frameworks.labelled_executor import labelled_executor  # noqa: PLC0415

    check_offered(precision, PRECISIONS, "numpy", device)
    check_device(device)
    threadpoolctl.threadpool_limits(threads)
    return labelled_executor(
        from_onnx, NumPy(), model, model_kwargs, sample_shape, classes, loss, seed, precision
    )


def load() -> None:
    """Import everything the executor needs, so that an agent can do it while others still start."""
    from d5ray.frameworks.arrays import executor  # noqa: F401, PLC0415


def check_device(device: Device) -> None:
    """Raise `ConfigurationError` for a device that is not the processor."""
    if not isinstance(device, (CPUDevice, BestDevice)):
        raise ConfigurationError(
            f"the device is {device}, and NumPy computes on the processor: use CPUDevice(), or the framework "
            "cupy"
        )
