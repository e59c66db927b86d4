"""Build of a checked executor on a device from a model as data"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.executor_options import AS_IT_IS, ExecutorOptions
from d5ray.frameworks.torch.copying import copied, parts_of
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.frameworks.torch.library import chosen, tensor_of
from d5ray.frameworks.torch.modes import begin_training
from d5ray.frameworks.torch.modules import (
    CausalAttention,
    ConcatenatedSkip,
    LastPosition,
    LSTMLayer,
    Permuted,
    PositionTable,
    RowByRow,
    Sum,
    embedding,
)
from d5ray.frameworks.torch.network_module import NetworkModule
from d5ray.frameworks.torch.precision import PassPrecision
from d5ray.frameworks.torch.recomputing import recompute
from d5ray.frameworks.torch.trial import ModuleTrial
from d5ray.networks.device import Device
from d5ray.networks.executors.labelled_network import check_one_of_each
from d5ray.networks.layers.layers import (
    BatchNorm,
    CausalSelfAttention,
    ChannelsLast,
    Conv,
    ConvTranspose,
    Dropout,
    Embedding,
    Flatten,
    Gelu,
    GlobalAveragePool,
    ImageRows,
    Last,
    Layer,
    LayerNorm,
    Linear,
    Lstm,
    MaxPool,
    Positions,
    Relu,
    Residual,
    Shape,
    SkipConcatenation,
)
from d5ray.networks.loading import as_network, check_tensors, holding, is_path
from d5ray.networks.network import Network
from d5ray.networks.zoo import catalogue
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    from d5ray.frameworks.torch.compiled import CompiledForward


IN_EVALUATION: Final = (
    "the model was given in evaluation mode, as after eval(), and is put in training mode: a part that "
    "is to stay in evaluation mode needs another one that is in training mode"
)


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """A block whose random numbers follow from a seed; PyTorch's generators are afterwards as before."""
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(range(torch.cuda.device_count()) if used else ()):
        torch.manual_seed(seed)
        yield


def module(
    model: Any, options: dict[str, Any], sample_shape: Shape, classes: int, *, seed: int, threads: int
) -> nn.Module:
    """The `nn.Module` of a model given by name, by class or function, as a Network, or as it is; seeded.

    A module is taken itself: `copied` gives one of one's own.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    if torch.is_inference_mode_enabled():
        raise ConfigurationError(
            "the model is made under torch.inference_mode(), whose tensors cannot be trained: leave "
            "that block before, or take torch.no_grad()"
        )
    made = _made(model, options, sample_shape, classes)
    if isinstance(made, Network):
        check_one_of_each(made, sample_shape)
        return NetworkModule(made, made.parameters)
    if bare := next((name for name, each in made.named_parameters() if each.is_meta), None):
        raise ConfigurationError(
            f"the model's parameter {bare!r} is on PyTorch's meta device, where it has no values: call "
            "to_empty(device='cpu') and initialize it, where the model is made"
        )
    return made


def _made(model: Any, options: dict[str, Any], sample_shape: Shape, classes: int) -> nn.Module | Network:
    """The module or Network of a model in any of its forms."""
    if isinstance(model, Network) or is_path(model):
        return as_network(model)
    if isinstance(model, str):
        return chain(catalogue.network(model, sample_shape, classes, **options), sample_shape)
    if isinstance(model, nn.Module):
        return model
    made = model if hasattr(model, "trainable_variables") else model(**options)
    if isinstance(made, Network):
        return made
    if hasattr(made, "trainable_variables"):
        raise ConfigurationError(
            f"the model {made.name!r} is one of Keras's: set executor='tensorflow', under which it trains as "
            "it is"
        )
    if not isinstance(made, nn.Module):
        raise ConfigurationError(
            f"the model {model!r} made a {type(made).__name__}, but the PyTorch executor needs a "
            "torch.nn.Module or a Network: return one, or choose another executor"
        )
    return made


def trained(
    model: Any,
    options: dict[str, Any],
    tensors: Mapping[str, np.ndarray[Any, Any]],
    sample_shape: Shape,
    classes: int,
    *,
    seed: int,
) -> nn.Module | Network:
    """The model with these tensors, by its own names and in their types; PyTorch's generator stays as it was.

    Of tensors with several names one must be given. Raises `ConfigurationError` for another model's.
    """
    with drawing_from(seed):
        made = _made(copied(model)[0], options, sample_shape, classes)
    if isinstance(made, Network):
        return holding(made, tensors)
    _load(made, tensors)
    return made.eval()


def _load(made: nn.Module, tensors: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Give a module's tensors these values, and their types."""
    own = made.state_dict(keep_vars=True)
    given = {id(own[name]) for name in tensors if name in own}
    missing = [
        name
        for name, tensor in own.items()
        if isinstance(tensor, torch.Tensor) and id(tensor) not in given and tensor.is_floating_point()
    ]
    check_tensors(type(made).__name__, own, tensors, missing)
    first: dict[int, str] = {}
    for name, value in tensors.items():
        tied = first.setdefault(id(own[name]), name)
        if tied != name and tensors[tied].tobytes() != value.tobytes():
            raise ConfigurationError(
                f"{tied} and {name} have values of their own, and {type(made).__name__} has one tensor for "
                "both: its training untied them; take --to safetensors or state_dict, for a model with two"
            )
        own[name].data = tensor_of(np.array(value))


def seeded(layers: tuple[Layer, ...], sample_shape: Shape, seed: int) -> nn.Sequential:
    """The layers as modules with the first parameters of this seed; PyTorch's generator stays as it was."""
    with drawing_from(seed):
        return chain(layers, sample_shape)


def chain(layers: tuple[Layer, ...], sample_shape: Shape) -> nn.Sequential:
    """The layers as PyTorch's own modules, one after the other."""
    modules: list[nn.Module] = []
    shape = sample_shape
    for layer in layers:
        modules.append(_module(layer, shape))
        shape = layer.output_shape(shape)
    return nn.Sequential(*modules)


def _module(layer: Layer, shape: Shape) -> nn.Module:
    """One layer for inputs (batch, *shape)."""
    match layer:
        case Conv(channels, kernel, padding, stride, bias, groups):
            return nn.Conv2d(shape[0], channels, kernel, stride, padding, groups=groups, bias=bias)
        case ConvTranspose(channels, kernel, padding, stride, bias):
            return nn.ConvTranspose2d(shape[0], channels, kernel, stride, padding, bias=bias)
        case BatchNorm(epsilon, momentum):
            return nn.BatchNorm2d(shape[0], epsilon, momentum)
        case MaxPool(size, stride, padding):
            return nn.MaxPool2d(size, stride, padding)
        case GlobalAveragePool():
            return nn.AdaptiveAvgPool2d(1)
        case Embedding(tokens, width):
            return embedding(tokens, width)
        case Positions(longest):
            return PositionTable(shape[0] if longest is None else longest, shape[1])
        case LayerNorm(epsilon):
            return nn.LayerNorm(shape[-1], epsilon)
        case CausalSelfAttention(heads):
            return CausalAttention(shape[1], heads)
        case Relu():
            return nn.ReLU()
        case Gelu():
            return nn.GELU()
        case Dropout(share):
            return nn.Dropout(share)
        case Flatten():
            return nn.Flatten()
        case Linear(features):
            return nn.Linear(shape[-1], features)
        case Residual(body, shortcut):
            return Sum(chain(body, shape), chain(shortcut, shape))
        case SkipConcatenation(body):
            return ConcatenatedSkip(chain(body, shape))
        case ChannelsLast():
            return Permuted((0, 2, 3, 1))
        case ImageRows():
            return nn.Identity() if len(shape) == 2 else RowByRow()
        case Lstm(features):
            return LSTMLayer(shape[1], features)
        case Last():
            return LastPosition()


def executor(
    network: nn.Module,
    sample_shape: Shape,
    classes: int,
    loss: Loss,
    device: Device,
    options: ExecutorOptions = AS_IT_IS,
) -> TorchExecutor:
    """The executor on its device, after a trial of two samples whose output must fit the loss."""
    own = chosen(device)
    precision = PassPrecision(options.precision, own)
    network = precision.prepared(network.to(own))
    for part in parts_of(loss):
        precision.prepared(part.to(own))
    notes = (IN_EVALUATION,) if begin_training(network) else ()
    if options.recompute:
        recompute(network)
    tried = ModuleTrial(network, loss, precision, own).found(sample_shape)
    if tried.shape is not None:
        loss.check(tried.shape, classes)
    made = TorchExecutor(
        network,
        loss,
        own,
        precision,
        _compiled(network) if options.compile else None,
        differentiates=tried.differentiates,
    )
    made.notes = notes
    return made


def _compiled(network: nn.Module) -> "CompiledForward":
    from d5ray.frameworks.torch.compiled import CompiledForward  # noqa: PLC0415 - imports PyTorch's compiler

    return CompiledForward(network)
