"""Small networks as Networks, and as PyTorch modules with the same parameters: the oracle of the executors"""

import copy
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from d5ray.frameworks.torch import build
from d5ray.networks.executors.graph_executor import GraphExecutor
from d5ray.networks.executors.labelled_network import LabelledNetwork, labelled
from d5ray.networks.layers.from_layers import network_from_layers
from d5ray.networks.layers.layers import chain_shape
from d5ray.networks.network import Network
from d5ray.networks.zoo import catalogue
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

Array = np.ndarray[Any, Any]
LOSS = SoftmaxCrossEntropyLoss()
BATCH = 6
CASES: dict[str, tuple[tuple[int, ...], int, dict[str, Any]]] = {
    "mlp": ((1, 8, 8), 10, {"hidden": (16, 12)}),
    "lenet": ((1, 8, 8), 10, {}),
    "resnet8": ((3, 8, 8), 5, {"width": 4}),
    "transformer": ((7,), 11, {"width": 16, "heads": 4, "context": 9}),
}
OTHERS: dict[str, tuple[tuple[int, ...], int, dict[str, Any]]] = {
    "lstm": ((1, 6, 5), 4, {}),
    "unet": ((2, 8, 8), 3, {"width": 4, "depth": 2}),
    "mobilenet": ((3, 32, 32), 4, {"width": 4}),
    "vgg11": ((3, 32, 32), 4, {"width": 4, "hidden": (8,), "dropout": 0.0}),
    "resnet20": ((3, 16, 16), 5, {"width": 4}),
    "resnet50": ((3, 64, 64), 5, {"width": 4}),
    "wide_resnet": ((3, 8, 8), 4, {"depth": 10, "factor": 1}),
}
TOLERANCES = {"float32": 1e-4, "float64": 1e-9}  # relative to the largest entry


def tolerance(framework: str, name: str, dtype: str) -> float:
    """Of this network; TensorFlow's own gelu divides by the root of two as float32 has it."""
    return 2e-8 if (framework, name, dtype) == ("tensorflow", "transformer", "float64") else TOLERANCES[dtype]


def _gpus() -> bool:
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy  # noqa: PLC0415 - an extra

    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


of_cupy = pytest.mark.skipif(not _gpus(), reason="no CuPy with a GPU here")
FRAMEWORKS = [
    "numpy",
    "torch",
    pytest.param(
        "tensorflow",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
        ),
    ),
    pytest.param("cupy", marks=of_cupy),
]


def executor(framework: str, network: Network, **options: Any) -> GraphExecutor:
    """The framework's executor."""
    made: GraphExecutor = importlib.import_module(f"d5ray.frameworks.{framework}").from_onnx(
        network, **options
    )
    return made


@dataclass(frozen=True)
class Case:
    """A network with its loss, samples with labels, and PyTorch's module of the same parameters."""

    labelled: LabelledNetwork
    module: nn.Module
    inputs: Array
    labels: Array

    @property
    def network(self) -> Network:
        """One of the test's own."""
        return self.labelled.network.copy()

    @property
    def given(self) -> dict[str, Array]:
        return {"input": self.inputs, "labels": self.labels}

    def twin(self) -> nn.Module:
        """A copy of the module, in training mode."""
        return copy.deepcopy(self.module).train()


@cache
def case(name: str, dtype: str = "float32") -> Case:
    """The network of this name, its parameters and samples in this type."""
    shape, classes, options = {**CASES, **OTHERS}[name]
    layers = catalogue.network(name, shape, classes, **options)
    module = as_onnx_keeps_it(build.seeded(layers, shape, 3).to(getattr(torch, dtype)))
    values = {key: np.array(tensor.numpy()) for key, tensor in module.state_dict().items()}
    network = network_from_layers(layers, shape, values, name=name)
    generator = np.random.default_rng(5)
    if name == "transformer":
        inputs, labels = (generator.integers(0, classes, (BATCH, *shape)) for _ in range(2))
    else:
        inputs = generator.standard_normal((BATCH, *shape)).astype(dtype)
        labels = generator.integers(0, classes, (BATCH, *chain_shape(layers, shape)[:-1]))
    return Case(labelled(network, LOSS, shape), module, inputs, labels)


def as_onnx_keeps_it(module: nn.Module) -> nn.Module:
    """The module with the numbers in its layers rounded to float32, which is what ONNX's attributes are."""
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d | nn.LayerNorm):
            part.eps = float(np.float32(part.eps))
        if isinstance(part, nn.BatchNorm2d):
            assert part.momentum is not None
            part.momentum = 1 - float(np.float32(1 - part.momentum))
    return module


def autograd(made: Case) -> tuple[float, Array, dict[str, Array]]:
    """Loss, scores and gradients of a training pass by PyTorch alone."""
    twin = made.twin()
    scores = twin(torch.from_numpy(made.inputs))
    loss = LOSS.torch(scores, torch.from_numpy(made.labels))
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {}
    for name, tensor in twin.named_parameters():
        assert tensor.grad is not None
        gradients[name] = tensor.grad.numpy()
    return loss.item(), scores.detach().numpy(), gradients


def error(found: Array, expected: Array) -> float:
    """The largest difference, relative to the largest entry that is expected."""
    assert found.shape == expected.shape and found.dtype == expected.dtype
    scale = float(np.abs(expected).max(initial=0.0)) or 1.0
    return float(np.abs(found - expected).max(initial=0.0)) / scale


def by_onnxruntime(network: Network, **given: Array) -> list[Array]:
    """The network's outputs, as onnxruntime computes them in one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(network.to_onnx().SerializeToString(), options)
    return [np.asarray(each) for each in session.run(None, given)]


def gradients_of(made: GraphExecutor, loss: str = "loss") -> dict[str, Array]:
    """By parameter, what the network fetches after a training pass."""
    pairs = made.network.gradient(loss)
    values = made.network.fetch_tensors([gradient for _, gradient in pairs])
    return dict(zip((parameter for parameter, _ in pairs), values, strict=True))


def network_of(
    *nodes: Node,
    inputs: Mapping[str, TensorDescriptor],
    outputs: tuple[str, ...],
    parameters: Mapping[str, Array] | None = None,
    constants: Mapping[str, Array] | None = None,
) -> Network:
    """A network of these nodes."""
    made = Network("small")
    with made.changes():
        for name, descriptor in inputs.items():
            made.add_input(name, descriptor)
        for name, value in (parameters or {}).items():
            made.add_parameter(name, value)
        for name, value in (constants or {}).items():
            made.add_constant(name, value)
        for node in nodes:
            made.add_node(node)
        for name in outputs:
            made.add_output(name)
    return made
