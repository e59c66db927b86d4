"""Keras's recurrent layers as nodes of a Network: gates in ONNX's order, steps before samples"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.tensorflow.keras_layers import Convert, Value, Writer, elementwise, plain

# Keras has an LSTM's gates as i, f, c, o and ONNX as i, o, f, c; a GRU's are z, r, h in both.
GATES: Final[Mapping[str, tuple[int, ...]]] = {"LSTM": (0, 3, 1, 2), "GRU": (0, 1, 2), "RNN": (0,)}
FUNCTIONS: Final = {"tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu"}
MERGED: Final = {"sum": "Sum", "mul": "Mul", "ave": "Mean"}


def recurrent(type: str) -> Convert:
    """The layer whose node is an LSTM, a GRU or an RNN."""

    def convert(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
        if layer.go_backwards and layer.return_sequences:
            raise ConfigurationError(
                f"the layer {layer.name!r} gives its steps backwards: put it into a Bidirectional layer, or "
                "let go_backwards be False"
            )
        return _one_way(to, type, layer, values[0])

    return convert


def bidirectional(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    """The outputs of both directions, put beside each other or merged."""
    kind = type(layer.forward_layer).__name__
    if kind not in TYPES or type(layer.backward_layer).__name__ != kind:
        raise ConfigurationError(
            f"the layer {layer.name!r} goes both ways through a {kind}: take one of {', '.join(TYPES)}"
        )
    ways = [
        _one_way(to, TYPES[kind], each, values[0]) for each in (layer.forward_layer, layer.backward_layer)
    ]
    if layer.merge_mode in MERGED:
        return elementwise(to, ways, MERGED[layer.merge_mode], layer.name)
    if layer.merge_mode != "concat":
        raise ConfigurationError(
            f"the layer {layer.name!r} does not merge its ways (merge_mode={layer.merge_mode!r}): take "
            f"'concat' or one of {', '.join(map(repr, MERGED))}"
        )
    made = to.node("Concat", [to.last(each) for each in ways], layer.name, axis=ways[0].rank - 1)
    return plain(made, ways[0].rank)


def _one_way(to: Writer, type: str, layer: Any, value: Value) -> Value:
    """(batch, steps, features) to all states (batch, steps, units), or to the last (batch, units)."""
    _check(to, layer)
    cell, name = layer.cell, layer.name
    steps = to.node("Transpose", [to.last(value)], f"{name}_by_step", perm=(1, 0, 2))
    read = [
        steps,
        to.weight(cell.kernel, lambda each: _gates(type, each.T)[np.newaxis]),
        to.weight(cell.recurrent_kernel, lambda each: _gates(type, each.T)[np.newaxis]),
        _biases(to, type, layer),
    ]
    attributes: dict[str, Any] = {"hidden_size": layer.units, "activations": _functions(type, layer)}
    if layer.go_backwards:
        attributes["direction"] = "reverse"
    if type == "GRU":
        attributes["linear_before_reset"] = int(layer.reset_after)
    states = to.node(type, read if read[-1] else read[:-1], name, more=1, **attributes)
    if not layer.return_sequences:
        axis = to.constant(f"{name}/way", np.array([0]))
        return plain(to.node("Squeeze", [f"{states}1", axis], f"{name}_last"), 2)
    axis = to.constant(f"{name}/way", np.array([1]))
    one = to.node("Squeeze", [states, axis], f"{name}_states")
    return plain(to.node("Transpose", [one], f"{name}_by_sample", perm=(1, 0, 2)), 3)


def _check(to: Writer, layer: Any) -> None:
    """Raise `ConfigurationError` for what no node of ONNX does."""
    for option, wrong in (
        ("stateful", layer.stateful),
        ("return_state", layer.return_state),
        ("dropout", to.training and (layer.dropout or layer.recurrent_dropout)),
    ):
        if wrong:
            raise ConfigurationError(
                f"the layer {layer.name!r} has {option}={wrong}, which its node has not: leave it out"
            )


def _functions(type: str, layer: Any) -> tuple[str, ...]:
    """The activations of gates and states, as ONNX names them."""
    given = [layer.activation]
    if type != "RNN":
        given = [layer.recurrent_activation, *given * (2 if type == "LSTM" else 1)]
    names = [each.__name__ for each in given]
    unknown = sorted(set(names) - FUNCTIONS.keys())
    if unknown:
        raise ConfigurationError(
            f"the layer {layer.name!r} has the activation {unknown[0]!r}: take one of {', '.join(FUNCTIONS)}"
        )
    return tuple(FUNCTIONS[name] for name in names)


def _biases(to: Writer, type: str, layer: Any) -> str:
    """The biases of inputs and of states, one after the other; Keras has the second for one kind alone."""
    if not layer.use_bias:
        return ""
    bias = layer.cell.bias
    if len(bias.shape) == 2:
        return to.weight(bias, lambda each: each.reshape(1, -1))
    first = to.weight(bias, lambda each: _gates(type, each)[np.newaxis])
    none = to.constant(f"{layer.name}/zeros", np.zeros((1, bias.shape[0]), np.float32))
    return to.node("Concat", [first, none], f"{layer.name}_biases", axis=1)


def _gates(type: str, weights: Any) -> Any:
    """Weights (gates · units, ...) with the gates in ONNX's order."""
    order = GATES[type]
    parts = np.split(weights, len(order))
    return np.concatenate([parts[place] for place in order])


TYPES: Final = {"LSTM": "LSTM", "GRU": "GRU", "SimpleRNN": "RNN"}
RECURRENT: Final[Mapping[str, Convert]] = {
    **{name: recurrent(type) for name, type in TYPES.items()},
    "Bidirectional": bidirectional,
}
