"""Keras's layers as nodes of a Network: channels are last in Keras and first in ONNX"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node


@dataclass
class Value:
    """A tensor with its channels last, first, or both ways; equal for those with fewer than three axes."""

    rank: int
    last: str | None
    first: str | None


@final
class Writer:
    """The network that layers write their nodes into."""

    def __init__(self, network: Network, training: bool) -> None:
        self.network, self.training = network, training

    def node(self, type: str, inputs: Sequence[str], name: str, more: int = 0, **attributes: Any) -> str:
        """Add a node of this name, or another one where it is taken; its first output is given back."""
        taken = {each.name for each in self.network.nodes}
        while name in taken:
            name += f"_{type}"
        outputs = tuple(f"{name}_output{place or ''}" for place in range(more + 1))
        self.network.add_node(Node(type, tuple(inputs), outputs, attributes, name))
        return outputs[0]

    def weight(self, variable: Any, turn: Callable[[Any], Any] = np.asarray) -> str:
        """A weight of a layer, under Keras's own name; frozen ones are constants."""
        value, name = turn(np.asarray(variable)), str(variable.path)
        if name not in self.network.parameters and name not in self.network.constants:
            add = self.network.add_parameter if variable.trainable else self.network.add_constant
            add(name, value)
        return name

    def constant(self, name: str, value: Any) -> str:
        """A constant of the network, of a layer that is used several times the same; its name there."""
        return name if name in self.network.constants else self.network.add_constant(name, value)

    def last(self, value: Value) -> str:
        """The tensor with its channels last."""
        if value.last is None:
            order = (0, *range(2, value.rank), 1)
            assert value.first is not None
            value.last = self.node("Transpose", [value.first], f"{value.first}_last", perm=order)
        return value.last

    def first(self, value: Value) -> str:
        """The tensor with its channels first."""
        if value.first is None:
            order = (0, value.rank - 1, *range(1, value.rank - 1))
            assert value.last is not None
            value.first = self.node("Transpose", [value.last], f"{value.last}_first", perm=order)
        return value.first


Convert = Callable[[Writer, Any, Sequence[Value]], Value]

ACTIVATIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "relu": ("Relu", {}),
    "sigmoid": ("Sigmoid", {}),
    "tanh": ("Tanh", {}),
    "softplus": ("Softplus", {}),
    "softsign": ("Softsign", {}),
    "elu": ("Elu", {}),
    "selu": ("Selu", {}),
    "gelu": ("Gelu", {}),
    "silu": ("Swish", {}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.2}),
    "hard_sigmoid": ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    "exponential": ("Exp", {}),
}


def plain(name: str, rank: int) -> Value:
    """A tensor as Keras has it."""
    return Value(rank, name, name if rank < 3 else None)


def activated(to: Writer, layer: Any, value: Value, activation: Any) -> Value:
    """The output of a layer's activation for a value."""
    name = getattr(activation, "__name__", str(activation))
    if activation is None or name == "linear":
        return value
    if name == "softmax":
        return plain(to.node("Softmax", [to.last(value)], f"{layer.name}_softmax", axis=-1), value.rank)
    if name not in ACTIVATIONS:
        raise ConfigurationError(f"the layer {layer.name!r} has the activation {name!r}, which is no node")
    type, attributes = ACTIVATIONS[name]
    return elementwise(to, [value], type, f"{layer.name}_{name}", **attributes)


def elementwise(to: Writer, values: Sequence[Value], type: str, name: str, **attributes: Any) -> Value:
    """A node that treats all axes alike, on the tensors as they are there."""
    rank = max(each.rank for each in values)
    if all(each.first is not None and each.rank == rank for each in values):
        made = to.node(type, [to.first(each) for each in values], name, **attributes)
        return Value(rank, made if rank < 3 else None, made)
    return plain(to.node(type, [to.last(each) for each in values], name, **attributes), rank)


def _dense(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    (value,) = values
    read = [to.last(value), to.weight(layer.kernel)]
    if value.rank == 2:
        read += [to.weight(layer.bias)] if layer.use_bias else []
        made = to.node("Gemm", read, layer.name)
    else:
        made = to.node("MatMul", read, layer.name)
        if layer.use_bias:
            made = to.node("Add", [made, to.weight(layer.bias)], f"{layer.name}_bias")
    return activated(to, layer, plain(made, value.rank), layer.activation)


def _convolution(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    rank = values[0].rank
    order = (rank - 1, rank - 2, *range(rank - 2))  # (…, in, out) -> (out, in, …)
    kernel = to.weight(layer.kernel, lambda each: each.transpose(order))
    return _convolved(to, layer, values, kernel, layer.groups)


def _transposed(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    if layer.output_padding is not None:
        raise ConfigurationError(f"the layer {layer.name!r} has an output_padding: leave it out")
    rank = values[0].rank
    order = (rank - 1, rank - 2, *range(rank - 2))  # (…, out, in) -> (in, out, …)
    read = [to.first(values[0]), to.weight(layer.kernel, lambda each: each.transpose(order))]
    sizes = zip(layer.strides, layer.kernel_size, layer.dilation_rate, strict=True)
    made = to.node(
        "ConvTranspose",
        read + ([to.weight(layer.bias)] if layer.use_bias else []),
        layer.name,
        strides=layer.strides,
        dilations=layer.dilation_rate,
        output_padding=[max(stride - (size - 1) * step - 1, 0) for stride, size, step in sizes],
        auto_pad=_padding(layer),
    )
    return activated(to, layer, Value(rank, None, made), layer.activation)


def _zero_padding(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    """Keras's padding of each axis of the space is (before, after)."""
    around = [(0, 0), (0, 0), *np.asarray(layer.padding).reshape(-1, 2).tolist()]
    pads = to.constant(f"{layer.name}/pads", np.array(around).T.ravel())
    return Value(values[0].rank, None, to.node("Pad", [to.first(values[0]), pads], layer.name))


def _depthwise(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    def turned(kernel: Any) -> Any:  # (height, width, in, each) -> (in · each, 1, height, width)
        return kernel.transpose(2, 3, 0, 1).reshape(-1, 1, *kernel.shape[:2])

    return _convolved(to, layer, values, to.weight(layer.kernel, turned), layer.kernel.shape[2])


def _convolved(to: Writer, layer: Any, values: Sequence[Value], kernel: str, groups: int) -> Value:
    read = [to.first(values[0]), kernel, *([to.weight(layer.bias)] if layer.use_bias else [])]
    made = to.node(
        "Conv",
        read,
        layer.name,
        strides=layer.strides,
        dilations=layer.dilation_rate,
        group=groups,
        auto_pad=_padding(layer),
    )
    return activated(to, layer, Value(values[0].rank, None, made), layer.activation)


def _pooling(type: str) -> Convert:
    def convert(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
        made = to.node(
            type,
            [to.first(values[0])],
            layer.name,
            kernel_shape=layer.pool_size,
            strides=layer.strides,
            auto_pad=_padding(layer),
        )
        return Value(values[0].rank, None, made)

    return convert


def _global_pooling(type: str) -> Convert:
    def convert(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
        made = to.node(type, [to.first(values[0])], layer.name)
        if layer.keepdims:
            return Value(values[0].rank, None, made)
        return plain(to.node("Flatten", [made], f"{layer.name}_flatten"), 2)

    return convert


def _padding(layer: Any) -> str:
    if getattr(layer, "data_format", "channels_last") != "channels_last":
        raise ConfigurationError(f"the layer {layer.name!r} has its channels first: let them be last")
    return {"same": "SAME_UPPER", "valid": "VALID"}.get(layer.padding) or _refused(layer, layer.padding)


def _refused(layer: Any, padding: object) -> str:
    raise ConfigurationError(f"the layer {layer.name!r} is padded {padding!r}: take 'same' or 'valid'")


def _batch_normalization(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    (value,) = values
    if layer.axis not in (-1, value.rank - 1):
        raise ConfigurationError(f"the layer {layer.name!r} normalizes the axis {layer.axis}: let it be -1")
    scale, shift = _scale_and_shift(to, layer, layer.moving_mean.shape)
    moving = (layer.moving_mean, layer.moving_variance)
    trains = to.training and layer.trainable
    if trains and str(layer.moving_mean.path) in to.network.state_values:
        raise ConfigurationError(
            f"the layer {layer.name!r} is used more than once, and a network that is trained keeps its "
            "moving statistics of one use: train the Keras model itself, executor='tensorflow'"
        )
    add = to.network.add_state if trains else to.constant
    kept = [add(str(each.path), np.asarray(each)) for each in moving]
    made = to.node(
        "BatchNormalization",
        [to.first(value), scale, shift, *kept],
        layer.name,
        more=2 if trains else 0,
        epsilon=float(layer.epsilon),
        momentum=float(layer.momentum),
        training_mode=int(trains),
    )
    return Value(value.rank, made if value.rank < 3 else None, made)


def _layer_normalization(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    (value,) = values
    axes = [layer.axis] if isinstance(layer.axis, int) else list(layer.axis)
    if axes not in ([-1], [value.rank - 1]):
        raise ConfigurationError(f"the layer {layer.name!r} normalizes the axes {axes}: let it be -1")
    width = (layer.gamma if layer.scale else layer.beta).shape if layer.scale or layer.center else None
    if width is None:
        raise ConfigurationError(f"the layer {layer.name!r} has neither scale nor center: give it one")
    read = [to.last(value), *_scale_and_shift(to, layer, width)]
    return plain(
        to.node("LayerNormalization", read, layer.name, axis=-1, epsilon=float(layer.epsilon)), value.rank
    )


def _scale_and_shift(to: Writer, layer: Any, shape: Any) -> tuple[str, str]:
    """gamma and beta; where the layer has none, ones and zeros that are not trained."""
    ones, zeros = np.ones(shape, np.float32), np.zeros(shape, np.float32)
    scale = to.weight(layer.gamma) if layer.scale else to.constant(f"{layer.name}/ones", ones)
    shift = to.weight(layer.beta) if layer.center else to.constant(f"{layer.name}/zeros", zeros)
    return scale, shift


def _dropout(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    (value,) = values
    if not to.training or not layer.rate:
        return value
    ratio = to.constant(f"{layer.name}/rate", np.float32(layer.rate))
    trains = to.constant(f"{layer.name}/trains", np.bool_(True))
    read = value.first or value.last
    assert read is not None
    made = to.node("Dropout", [read, ratio, trains], layer.name)
    return Value(value.rank, made if read == value.last else None, made if read == value.first else None)


def _flatten(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    return plain(to.node("Flatten", [to.last(values[0])], layer.name), 2)


def _reshape(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    target = to.constant(f"{layer.name}/shape", np.array([0, *layer.target_shape]))
    return plain(to.node("Reshape", [to.last(values[0]), target], layer.name), 1 + len(layer.target_shape))


def _relu(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    if layer.threshold or (layer.negative_slope and layer.max_value is not None):
        raise ConfigurationError(f"the layer {layer.name!r} is a ReLU with a threshold: take a plain one")
    if layer.negative_slope:
        return elementwise(to, values, "LeakyRelu", layer.name, alpha=float(layer.negative_slope))
    if layer.max_value is None:
        return elementwise(to, values, "Relu", layer.name)
    bounds = [
        to.constant(f"{layer.name}/{end}", np.float32(bound))
        for end, bound in (("low", 0), ("high", layer.max_value))
    ]
    read = values[0].first or to.last(values[0])
    made = to.node("Clip", [read, *bounds], layer.name)
    return Value(values[0].rank, None, made) if read != values[0].last else plain(made, values[0].rank)


def _concatenate(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    rank = values[0].rank
    axis = layer.axis % rank
    if axis == rank - 1 and rank > 2 and all(each.first is not None for each in values):
        made = to.node("Concat", [to.first(each) for each in values], layer.name, axis=1)
        return Value(rank, None, made)
    return plain(to.node("Concat", [to.last(each) for each in values], layer.name, axis=axis), rank)


def _embedding(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    if layer.mask_zero:
        raise ConfigurationError(
            f"the layer {layer.name!r} masks zeros, and networks have no masks: let mask_zero be False"
        )
    read = to.last(values[0])
    if to.network.descriptors[read].dtype.kind == "f":
        read = to.node("Cast", [read], f"{layer.name}_whole", to=7)
    return plain(to.node("Gather", [to.weight(layer.embeddings), read], layer.name), values[0].rank + 1)


def _softmax(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    return plain(to.node("Softmax", [to.last(values[0])], layer.name, axis=layer.axis), values[0].rank)


def _merging(type: str) -> Convert:
    return lambda to, layer, values: elementwise(to, values, type, layer.name)


LAYERS: Mapping[str, Convert] = {
    "Activation": lambda to, layer, values: activated(to, layer, values[0], layer.activation),
    "Add": _merging("Sum"),
    "Average": _merging("Mean"),
    "AveragePooling1D": _pooling("AveragePool"),
    "AveragePooling2D": _pooling("AveragePool"),
    "BatchNormalization": _batch_normalization,
    "Concatenate": _concatenate,
    "Conv1D": _convolution,
    "Conv1DTranspose": _transposed,
    "Conv2D": _convolution,
    "Conv2DTranspose": _transposed,
    "Dense": _dense,
    "DepthwiseConv2D": _depthwise,
    "Dropout": _dropout,
    "ELU": lambda to, layer, values: elementwise(to, values, "Elu", layer.name, alpha=float(layer.alpha)),
    "Embedding": _embedding,
    "Flatten": _flatten,
    "GlobalAveragePooling1D": _global_pooling("GlobalAveragePool"),
    "GlobalAveragePooling2D": _global_pooling("GlobalAveragePool"),
    "GlobalMaxPooling1D": _global_pooling("GlobalMaxPool"),
    "GlobalMaxPooling2D": _global_pooling("GlobalMaxPool"),
    "LayerNormalization": _layer_normalization,
    "LeakyReLU": lambda to, layer, values: elementwise(
        to, values, "LeakyRelu", layer.name, alpha=float(layer.negative_slope)
    ),
    "MaxPooling1D": _pooling("MaxPool"),
    "MaxPooling2D": _pooling("MaxPool"),
    "Maximum": _merging("Max"),
    "Minimum": _merging("Min"),
    "Multiply": _merging("Mul"),
    "ReLU": _relu,
    "Reshape": _reshape,
    "Softmax": _softmax,
    "Subtract": _merging("Sub"),
    "ZeroPadding1D": _zero_padding,
    "ZeroPadding2D": _zero_padding,
}
