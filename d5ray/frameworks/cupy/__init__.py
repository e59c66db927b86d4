"""CuPy and NCCL: executors of Networks on a GPU; importing this imports neither"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from d5ray.names.kits import added
from d5ray.networks.device import Device, GPUDevice
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
    """The operator as a function of CuPy arrays, with `backward(grads, inputs, outputs)` for its gradients.

    Operators in Python get the arrays themselves. Those in C++ run on the GPU where their class says so, and
    else in host memory, by way of copies. Raises `ConfigurationError` where CuPy is not installed, or finds
    no GPU.
    """
    from d5ray.operators.framework import class_named  # noqa: PLC0415 - taken when used
    from d5ray.ops.custom.arrays import ArrayOperation, instance_of  # noqa: PLC0415

    class_named("cupy").on("cuda")
    import cupy  # noqa: PLC0415 - only where it is asked for

    return ArrayOperation(cupy, instance_of(op))


def from_onnx(
    network: "str | PathLike[str] | bytes | Network",
    device: Device = GPUDevice(),  # noqa: B008 - frozen data
    events: "GraphEvent | Sequence[GraphEvent]" = (),
    *,
    trained: Iterable[str] | None = None,
    seed: int = 0,
    collectives: "Collectives | None" = None,
) -> "ArrayExecutor":
    """The executor of a Network, or of an ONNX file; see `GraphExecutor`.

    Raises `ConfigurationError` where CuPy is not installed, or finds no GPU.
    """
    from d5ray.frameworks.arrays.executor import ArrayExecutor  # noqa: PLC0415 - when it is asked for
    from d5ray.frameworks.cupy.library import CuPy  # noqa: PLC0415
    from d5ray.networks.loading import as_network  # noqa: PLC0415

    library = CuPy(device)
    return ArrayExecutor(
        as_network(network), library, device, events, trained=trained, seed=seed, collectives=collectives
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
    device: Device = GPUDevice(),  # noqa: B008 - frozen data
    precision: str = "float32",
) -> "LabelledExecutor":
    """The executor that agents train with, of a network by name, a Network, or an ONNX file.

    `Experiment(executor="cupy")` means this. Flat parameters and gradients are CuPy's, on the GPU. The first
    parameters of a network by name are those that PyTorch gives it with the same seed.
    """
    from d5ray.frameworks.cupy.library import CuPy  # noqa: PLC0415 - when it is asked for
    from d5ray.frameworks.labelled_executor import labelled_executor  # noqa: PLC0415

    library = CuPy(device)
    check_offered(precision, PRECISIONS, "cupy", device)
    with library.computing():
        return labelled_executor(
            lambda network: from_onnx(network, device),
            library,
            model,
            model_kwargs,
            sample_shape,
            classes,
            loss,
            seed,
            precision,
        )


def load() -> None:
    """Import everything the executor needs, so that an agent can do it while others still start."""
    from d5ray.frameworks.arrays import executor  # noqa: F401, PLC0415
