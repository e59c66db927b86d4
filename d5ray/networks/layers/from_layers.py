"""The layers of a network by name, as a Network: nodes and tensors that run in every framework"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
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
    Layers,
    Linear,
    Lstm,
    MaxPool,
    Positions,
    Relu,
    Residual,
    Shape,
    SkipConcatenation,
)
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

Values = Mapping[str, np.ndarray[Any, Any]]
INPUT, OUTPUT = "input", "output"


def network_from_layers(
    layers: Layers, sample_shape: Shape, values: Values, *, name: str = "network"
) -> Network:
    """The Network of these layers for samples of this shape, from "input" (batch, *shape) to "output".

    values: parameters and running statistics by the names that PyTorch gives those of the same layers,
    such as "0.weight" or "3.body.0.weight"; the network's parameters have these names too. A node is called
    after its layer's place. The running variance is ONNX's, of the batch as a population: PyTorch's is
    n / (n − 1) times as large.

    Raises `ConfigurationError` where a value is missing.
    """
    translation = _Translation(Network(name), values)
    tokens = bool(layers) and isinstance(layers[0], Embedding)
    with translation.network.changes() as network:
        network.add_input(
            INPUT, TensorDescriptor(np.int64 if tokens else translation.type, ("batch", *sample_shape))
        )
        last, _ = translation.chain(layers, INPUT, sample_shape, "")
        network.rename(last, OUTPUT)
        network.add_output(OUTPUT)
    return translation.network


class _Translation:
    """The nodes and tensors that stand so far."""

    def __init__(self, network: Network, values: Values) -> None:
        self.network, self._values = network, values
        floating = [value.dtype for value in values.values() if value.dtype.kind not in "iub"]
        self.type = floating[0] if floating else np.dtype(np.float32)

    def chain(self, layers: Layers, tensor: str, shape: Shape, path: str) -> tuple[str, Shape]:
        """The tensor behind these layers, and the shape of one sample there."""
        for place, layer in enumerate(layers):
            tensor = self._layer(layer, tensor, shape, f"{path}{place}")
            shape = layer.output_shape(shape)
        return tensor, shape

    def node(
        self, kind: str, name: str, *inputs: str, outputs: tuple[str, ...] = (), **attributes: Any
    ) -> str:
        """One node more; gives its first output, by default called as the node."""
        made = outputs or (f"{name}.out",)
        self.network.add_node(Node(kind, inputs, made, attributes, name))
        return made[0]

    def _parameter(self, name: str) -> str:
        return self.network.add_parameter(name, self._value(name))

    def _value(self, name: str) -> np.ndarray[Any, Any]:
        if name not in self._values:
            raise ConfigurationError(f"there is no value for the parameter {name!r} of the network")
        return self._values[name]

    def _whole(self, name: str, numbers: Any) -> str:
        return self.network.add_constant(name, np.asarray(numbers, np.int64))

    def _layer(self, layer: Layer, x: str, shape: Shape, path: str) -> str:
        """The tensor that one layer makes of x (batch, *shape)."""
        match layer:
            case Conv() | ConvTranspose():
                return self._convolution(layer, x, path)
            case BatchNorm(epsilon, momentum):
                return self._batch_normalization(x, path, epsilon, momentum)
            case MaxPool(size, stride, padding):
                step = size if stride is None else stride
                return self.node(
                    "MaxPool", path, x, kernel_shape=(size, size), strides=(step, step), pads=(padding,) * 4
                )
            case GlobalAveragePool():
                return self.node("GlobalAveragePool", path, x)
            case Embedding():
                return self.node("Gather", path, self._parameter(f"{path}.weight"), x)
            case Positions():
                return self._positions(x, path, shape[0])
            case LayerNorm(epsilon):
                weight, bias = self._parameter(f"{path}.weight"), self._parameter(f"{path}.bias")
                return self.node("LayerNormalization", path, x, weight, bias, axis=-1, epsilon=epsilon)
            case CausalSelfAttention(heads):
                return self._attention(x, path, heads, len(shape))
            case Relu() | Gelu():
                return self.node(type(layer).__name__, path, x)
            case Dropout(share):
                ratio = self.network.add_constant(f"{path}.ratio", np.asarray(share, np.float32))
                training = self.network.add_constant(f"{path}.training", np.asarray(True))
                return self.node("Dropout", path, x, ratio, training)
            case Flatten():
                return self.node("Flatten", path, x)
            case Linear():
                return self._linear(x, path, len(shape))
            case Residual(body, shortcut):
                main, _ = self.chain(body, x, shape, f"{path}.body.")
                beside, _ = self.chain(shortcut, x, shape, f"{path}.shortcut.")
                return self.node("Add", path, main, beside)
            case SkipConcatenation(body):
                behind, _ = self.chain(body, x, shape, f"{path}.body.")
                return self.node("Concat", path, x, behind, axis=1)
            case ChannelsLast():
                return self.node("Transpose", path, x, perm=(0, 2, 3, 1))
            case ImageRows():
                return self._rows(x, path, shape)
            case Lstm(features):
                return self._memory(x, path, shape, features)
            case Last():
                return self.node("Gather", path, x, self._whole(f"{path}.place", -1), axis=1)
        raise ConfigurationError(f"the layer {layer} has no translation into a Network")

    def _convolution(self, layer: Conv | ConvTranspose, x: str, path: str) -> str:
        inputs = [x, self._parameter(f"{path}.weight")]
        if layer.bias:
            inputs.append(self._parameter(f"{path}.bias"))
        return self.node(
            type(layer).__name__,
            path,
            *inputs,
            group=getattr(layer, "groups", 1),
            kernel_shape=(layer.kernel,) * 2,
            strides=(layer.stride,) * 2,
            pads=(layer.padding,) * 4,
        )

    def _batch_normalization(self, x: str, path: str, epsilon: float, momentum: float) -> str:
        """PyTorch's momentum is the weight of the new, ONNX's that of the old."""
        mean, variance = f"{path}.running_mean", f"{path}.running_var"
        for name in (mean, variance):
            self.network.add_state(name, self._value(name))
        return self.node(
            "BatchNormalization",
            path,
            x,
            self._parameter(f"{path}.weight"),
            self._parameter(f"{path}.bias"),
            mean,
            variance,
            outputs=(f"{path}.out", f"{path}.next_mean", f"{path}.next_var"),
            epsilon=epsilon,
            momentum=1 - momentum,
            training_mode=1,
        )

    def _rows(self, x: str, path: str, shape: Shape) -> str:
        """(batch, channels, height, width) as (batch, height, channels · width)."""
        if len(shape) == 2:
            return x
        turned = self.node("Transpose", f"{path}.turned", x, perm=(0, 2, 1, 3))
        return self.node(
            "Reshape", path, turned, self._whole(f"{path}.shape", [0, shape[1], shape[0] * shape[2]])
        )

    def _memory(self, x: str, path: str, shape: Shape, features: int) -> str:
        """PyTorch has the gates in the order i, f, g, o, ONNX has i, o, f, c, and an axis of directions."""
        order = self._whole(f"{path}.order", [0, 3, 1, 2])
        weights = [
            self._gates(f"{path}.lstm.{name}", order, (4, features, width))
            for name, width in (("weight_ih_l0", shape[1]), ("weight_hh_l0", features))
        ]
        biases = [
            self._gates(f"{path}.lstm.{name}", order, (4, features)) for name in ("bias_ih_l0", "bias_hh_l0")
        ]
        both = self.node("Concat", f"{path}.biases", *biases, axis=1)
        outputs = (f"{path}.steps",)
        batch_first = self.node("Transpose", f"{path}.by_step", x, perm=(1, 0, 2))
        self.node("LSTM", path, batch_first, *weights, both, outputs=outputs, hidden_size=features)
        one = self.node("Squeeze", f"{path}.one", *outputs, self._whole(f"{path}.direction", [1]))
        return self.node("Transpose", f"{path}.by_sample", one, perm=(1, 0, 2))

    def _gates(self, name: str, order: str, shape: Shape) -> str:
        """A parameter (4 · features, ...) in ONNX's order of the gates, as (1, 4 · features, ...)."""
        apart = self.node(
            "Reshape", f"{name}.apart", self._parameter(name), self._whole(f"{name}.shape", shape)
        )
        ordered = self.node("Gather", f"{name}.ordered", apart, order)
        whole = (1, shape[0] * shape[1], *shape[2:])
        return self.node("Reshape", f"{name}.whole", ordered, self._whole(f"{name}.all", whole))

    def _positions(self, x: str, path: str, length: int) -> str:
        table = self._parameter(f"{path}.weight")
        if self._value(f"{path}.weight").shape[0] != length:
            begin, end = self._whole(f"{path}.begin", [0]), self._whole(f"{path}.end", [length])
            table = self.node("Slice", f"{path}.table", table, begin, end, self._whole(f"{path}.axis", [0]))
        return self.node("Add", path, x, table)

    def _linear(self, x: str, path: str, axes: int) -> str:
        """W x + b along the last axis, W (features, inputs)."""
        weight, bias = self._parameter(f"{path}.weight"), self._parameter(f"{path}.bias")
        if axes == 1:
            return self.node("Gemm", path, x, weight, bias, transB=1)
        turned = self.node("Transpose", f"{path}.turned", weight, perm=(1, 0))
        return self.node("Add", path, self.node("MatMul", f"{path}.product", x, turned), bias)

    def _attention(self, x: str, path: str, heads: int, axes: int) -> str:
        """Queries, keys and values of all heads side by side, each (batch, length, width)."""
        three = self._linear(x, f"{path}.into", axes)
        names = tuple(f"{path}.{part}" for part in ("queries", "keys", "values"))
        self.node("Split", f"{path}.split", three, outputs=names, axis=-1, num_outputs=3)
        mixed = self.node(
            "Attention", f"{path}.mixed", *names, q_num_heads=heads, kv_num_heads=heads, is_causal=1
        )
        return self._linear(mixed, f"{path}.out", axes)
