"""Build of a checked executor on a device from a model as data"""

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.frameworks.torch.library import chosen
from d5ray.frameworks.torch.modules import (
    CausalAttention,
    Joined,
    LastPosition,
    Memory,
    Permuted,
    PositionTable,
    RowByRow,
    Sum,
    embedding,
)
from d5ray.frameworks.torch.network_module import NetworkModule
from d5ray.networks.device import Device
from d5ray.networks.executors.labelled_network import check_one_of_each
from d5ray.networks.layers.layers import (
    BatchNorm,
    Beside,
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
)
from d5ray.networks.loading import as_network, is_path
from d5ray.networks.network import Network
from d5ray.networks.zoo import catalogue
from d5ray.operators.loss import Loss


def module(
    model: Any, options: dict[str, Any], sample_shape: Shape, classes: int, *, seed: int, threads: int
) -> nn.Module:
    """The `nn.Module` of a model given by name, by class or function, as a Network, or as it is; seeded."""
    torch.set_num_threads(threads)
    torch.manual_seed(seed)
    if isinstance(model, Network) or is_path(model):
        network = as_network(model)
        check_one_of_each(network, sample_shape)
        return NetworkModule(network, network.parameters)
    if isinstance(model, str):
        return chain(catalogue.network(model, sample_shape, classes, **options), sample_shape)
    if isinstance(model, nn.Module):
        return copy.deepcopy(model)
    made = model(**options)
    if isinstance(made, Network):
        check_one_of_each(made, sample_shape)
        return NetworkModule(made, made.parameters)
    if not isinstance(made, nn.Module):
        raise ConfigurationError(
            f"the model {model!r} made a {type(made).__name__}, but the PyTorch executor needs a "
            "torch.nn.Module or a Network: return one, or choose another executor"
        )
    return made


def seeded(layers: tuple[Layer, ...], sample_shape: Shape, seed: int) -> nn.Sequential:
    """The layers as modules with the first parameters of this seed; PyTorch's generator stays as it was."""
    before = torch.get_rng_state()
    try:
        torch.manual_seed(seed)
        return chain(layers, sample_shape)
    finally:
        torch.set_rng_state(before)


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
        case Beside(body):
            return Joined(chain(body, shape))
        case ChannelsLast():
            return Permuted((0, 2, 3, 1))
        case ImageRows():
            return nn.Identity() if len(shape) == 2 else RowByRow()
        case Lstm(features):
            return Memory(shape[1], features)
        case Last():
            return LastPosition()


def executor(
    network: nn.Module, sample_shape: Shape, classes: int, loss: Loss, device: Device
) -> TorchExecutor:
    """The executor on its device, after a trial of two samples whose output must fit the loss."""
    own = chosen(device)
    made = TorchExecutor(network.to(own), loss, own)
    loss.check(_tried(made, network, sample_shape), classes)
    return made


def _tried(made: TorchExecutor, network: nn.Module, sample_shape: Shape) -> tuple[int, ...]:
    """The shape of the output for two samples of numbers, or of tokens where a model takes nothing else."""
    probe = np.zeros((2, *sample_shape), dtype=np.float32)
    try:
        try:
            output = made.inference(probe)
        except RuntimeError:
            if not any(isinstance(part, nn.Embedding) for part in network.modules()):
                raise
            output = made.inference(probe.astype(np.int64))
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise ConfigurationError(
            f"the model does not take samples of shape {sample_shape}: {error}"
        ) from error
    return tuple(output.shape)
