"""PyTorch: executors of Networks and of native modules; importing this does not import torch."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from d5ray.frameworks.executor_options import ExecutorOptions
from d5ray.names.kits import added
from d5ray.networks.device import CPUDevice, Device
from d5ray.networks.executors.precision import PRECISIONS, check_offered
from d5ray.networks.layers.layers import Shape
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    from d5ray.frameworks.torch.executor import TorchExecutor
    from d5ray.frameworks.torch.graph_executor import TorchGraphExecutor
    from d5ray.frameworks.torch.native_executor import TorchNativeExecutor
    from d5ray.frameworks.torch.network_module import NetworkModule
    from d5ray.networks.events.event import GraphEvent
    from d5ray.networks.network import Network
    from d5ray.operators.collectives import Collectives
    from d5ray.ops.custom.torch_operation import TorchOperation

__getattr__ = added(__name__)


def from_onnx(
    network: "str | PathLike[str] | bytes | Network",
    device: Device = CPUDevice(),  # noqa: B008 - frozen data
    events: "GraphEvent | Sequence[GraphEvent]" = (),
    *,
    trained: Iterable[str] | None = None,
    seed: int = 0,
    collectives: "Collectives | None" = None,
    compiler: Callable[[Any], Any] | None = None,
) -> "TorchGraphExecutor":
    """The executor of a Network, or of an ONNX file; see `GraphExecutor`.

    compiler: what makes quicker code of the code that is written, such as `torch.compile`.
    """
    from d5ray.frameworks.torch.graph_executor import TorchGraphExecutor  # noqa: PLC0415 - imports torch
    from d5ray.networks.loading import as_network  # noqa: PLC0415

    return TorchGraphExecutor(
        as_network(network),
        device,
        events,
        trained=trained,
        seed=seed,
        collectives=collectives,
        compiler=compiler,
    )


def module(
    network: "str | PathLike[str] | bytes | Network", *, trained: Iterable[str] | None = None
) -> "NetworkModule":
    """A Network, or an ONNX file, as an `nn.Module` with parameters of its own; see `NetworkModule`.

    trained: the parameters that require gradients, by default all.
    """
    from d5ray.frameworks.torch.network_module import NetworkModule  # noqa: PLC0415 - imports torch
    from d5ray.networks.loading import as_network  # noqa: PLC0415

    found = as_network(network)
    return NetworkModule(found, found.parameters if trained is None else trained)


def from_native(
    model: Any,
    loss: Loss | None = None,
    device: Device = CPUDevice(),  # noqa: B008 - frozen data
    events: "GraphEvent | Sequence[GraphEvent]" = (),
) -> "TorchNativeExecutor":
    """An `nn.Module` as it is, with `inference` and `inference_and_backprop`; see `NativeExecutor`.

    loss: of the module's one output (batch, ..., classes) and the input "labels".
    """
    from d5ray.frameworks.torch.native_executor import TorchNativeExecutor  # noqa: PLC0415 - imports torch

    return TorchNativeExecutor(model, loss, device, events)


def from_model(
    model: Any,
    model_kwargs: dict[str, Any],
    *,
    sample_shape: Shape,
    classes: int,
    loss: Loss,
    seed: int,
    threads: int,
    device: Device = CPUDevice(),  # noqa: B008 - frozen data
    precision: str = "float32",
    compile: bool = False,
    recompute: bool = False,
) -> "TorchExecutor":
    """An executor of `model`: a name of the catalogue, a class or function that gives an `nn.Module`, or one;
    or a Network, or the path of an ONNX file, with one input and one output.

    Called on the agent. The same seed gives the same initial parameters on every agent; the generators of the
    program stay as they were. precision, compile,
    recompute: as for an `Experiment`.
    Raises `ConfigurationError` if the model's output does not fit the loss.
    """
    from d5ray.frameworks.torch import build  # noqa: PLC0415 - imports torch
    from d5ray.frameworks.torch.copying import copied  # noqa: PLC0415

    check_offered(precision, PRECISIONS, "torch", device)
    own, loss = copied(model, loss)
    options = ExecutorOptions(precision, compile, recompute)
    with build.drawing_from(seed):
        module = build.module(own, model_kwargs, sample_shape, classes, seed=seed, threads=threads)
        made = build.executor(module, sample_shape, classes, loss, device, options)
        made.draw_from(seed, rank=0)
    if own is not model:
        made.given = {id(tensor): name for name, tensor in model.named_parameters()}
    return made


setattr(from_model, "takes_trees", True)  # noqa: B010 - of samples that are several arrays


def ties_of_parameters(model: Any, loss: Any) -> tuple[list[Any], list[Any]] | None:
    """The hooks of the parameters of a module and its loss, and views of them, which PyTorch does not pickle.

    None where there are none, as of all other models and losses; see `tie_parameters`.
    """
    parts = [each for each in (model, *vars(loss).values()) if hasattr(each, "named_parameters")]
    if not parts:
        return None
    from d5ray.frameworks.torch import copying, shared_memory  # noqa: PLC0415 - imports torch

    modules = copying.modules_in(parts)
    found = list(copying.hooks_of(modules)), list(shared_memory.views_of_parameters(modules))
    return found if any(found) else None


def tie_parameters(hooks: list[Any], views: list[Any]) -> None:
    """Register these hooks of parameters again, and let views lie in the parameters' memory again."""
    from d5ray.frameworks.torch.shared_memory import put_views  # noqa: PLC0415 - imports torch

    for how, tensor, hook in hooks:
        getattr(tensor, how)(hook)
    put_views(views)


def trained_model(
    model: Any,
    model_kwargs: Mapping[str, Any],
    tensors: Mapping[str, Any],
    *,
    sample_shape: Shape,
    classes: int,
    seed: int,
) -> Any:
    """The model that `from_model` would train, with these tensors, by its own names, in evaluation mode.

    An `nn.Module`, or a Network where the model is one. Raises `ConfigurationError` for tensors that are
    another model's.
    """
    from d5ray.frameworks.torch import build  # noqa: PLC0415 - imports torch

    return build.trained(model, dict(model_kwargs), tensors, sample_shape, classes, seed=seed)


def onnx_model_of(module: Any, sample_shape: Shape) -> Any:
    """An `nn.Module` that takes batches of such samples, as it evaluates, as ONNX's message.

    Samples are float32, or int64 where the module takes nothing else. Raises `ConfigurationError` where
    PyTorch cannot export it.
    """
    from d5ray.frameworks.torch import export  # noqa: PLC0415 - imports torch

    return export.onnx_model(module, sample_shape)


def save_tensors(tensors: Mapping[str, Any], path: "PathLike[str]") -> None:
    """Write arrays as PyTorch's tensors by name, for `torch.load`."""
    from d5ray.frameworks.torch.library import save  # noqa: PLC0415 - imports torch

    save(tensors, path)


def custom_op(op: Any) -> "TorchOperation":
    """The operator as an operation of PyTorch, which autograd and `torch.compile` know.

    op: an object of a class derived from `CustomPythonOp`, or what `compile_custom_cppop` gives.
    """
    from d5ray.ops.custom.arrays import instance_of  # noqa: PLC0415 - taken when used
    from d5ray.ops.custom.torch_operation import TorchOperation  # noqa: PLC0415 - imports torch

    return TorchOperation(instance_of(op))


def load() -> None:
    """Import everything the executor needs, so that an agent can do it while others still start."""
    from d5ray.frameworks.torch import build  # noqa: F401, PLC0415 - imports torch


def network_of(module: Any, *samples: Any, batch: str | None = "batch") -> "Network":
    """An `nn.Module` as a Network, as it evaluates: no Dropout, running statistics as they are.

    samples: one input for each argument of the module's `forward`, tensors or arrays; only their shapes and
    types matter. batch: the name of their first axis, whose size is open; None where all sizes are as in the
    samples.
    Parameters keep the module's names. The module itself is not changed. Raises `ConfigurationError` where
    PyTorch cannot export the module, or the network would hold operators that d5ray has not.
    """
    from d5ray.frameworks.torch import export  # noqa: PLC0415 - imports torch

    return export.exported(module, samples, batch)


def training_network_of(module: Any, *samples: Any, batch: str | None = "batch") -> "Network":
    """The Network of a module in training: Dropout drops, BatchNorm uses the batch's statistics.

    The running statistics are `state` of the network. ONNX keeps the variance of the batch itself, where
    PyTorch keeps that times n/(n-1), an estimate of the data set's.
    """
    from d5ray.frameworks.torch import export  # noqa: PLC0415 - imports torch

    return export.exported_for_training(module, samples, batch)
