"""Export of a Keras model to a Network, layer by layer, under its own names; TensorFlow is not imported"""

from collections.abc import Mapping, Sequence
from typing import Any

from d5ray.errors import ConfigurationError
from d5ray.frameworks.tensorflow.keras_layers import LAYERS, Convert, Value, Writer, plain
from d5ray.frameworks.tensorflow.keras_recurrent import RECURRENT
from d5ray.networks.network import Network
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

CONVERSIONS: Mapping[str, Convert] = {**LAYERS, **RECURRENT}


def exported(model: Any, *, training: bool) -> Network:
    """The model as it evaluates, or as it trains; see `d5ray.frameworks.tensorflow.network_of`."""
    layers = _layers(model)
    if training:
        _check_trains_alike(model, layers)
    network = Network(model.name)
    to = Writer(network, training)
    values: dict[int, Value] = {}
    with network.changes():
        for tensor in model.inputs:
            sizes = [
                "batch" if axis == 0 else None if size is None else size
                for axis, size in enumerate(tensor.shape)
            ]
            network.add_input(tensor.name, TensorDescriptor(tensor.dtype, sizes))
            values[id(tensor)] = plain(tensor.name, len(sizes))
        for call in _calls(model, layers):
            given = [_value(values, each, call.operation) for each in call.input_tensors]
            values[id(call.outputs[0])] = _converted(to, call.operation, given)
        for place, tensor in enumerate(model.outputs):
            name = to.last(_value(values, tensor, model))
            wanted = "output" if len(model.outputs) == 1 else f"output_{place}"
            if name in network.inputs or name in network.graph.outputs:
                name = to.node("Identity", [name], wanted)
            network.rename(name, wanted)
            network.add_output(wanted)
    return network


def _layers(model: Any) -> list[Any]:
    """The layers that are nodes. Raises `ConfigurationError` that lists all that cannot be, at once."""
    if not hasattr(model, "layers") or not hasattr(model, "inputs") or not model.inputs:
        raise ConfigurationError(
            f"{model!r} is no Keras model whose inputs are known: give a functional one, or a Sequential "
            "one that begins with keras.Input"
        )
    layers = [each for each in model.layers if type(each).__name__ != "InputLayer"]
    missing = [
        f"{each.name} ({type(each).__name__})"
        for each in layers
        if type(each).__name__ not in CONVERSIONS or not type(each).__module__.startswith("keras.")
    ]
    if missing:
        raise ConfigurationError(
            f"the model {model.name!r} has layers that cannot be nodes of a network: {', '.join(missing)}; "
            f"those that can are {', '.join(CONVERSIONS)}"
        )
    return layers


def _calls(model: Any, layers: Sequence[Any]) -> list[Any]:
    """Every call of a layer, as Keras keeps it, what is read before who reads; a layer may have several."""
    by_depth = getattr(model, "_functional", model)._nodes_by_depth
    calls = [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]
    found = [each for each in calls if not each.is_input]
    for each in found:
        if not any(each.operation is layer for layer in layers):
            raise ConfigurationError(
                f"{each.operation.name!r} is no layer of the model {model.name!r}: let every operation be one"
            )
    return found


def _check_trains_alike(model: Any, layers: Sequence[Any]) -> None:
    """Raise `ConfigurationError`, naming layers, for what a Network would leave out of their training."""
    penalties = [
        each.name for each in layers if each.losses or getattr(each, "activity_regularizer", None) is not None
    ]
    constraints = [
        each.name for each in layers if any(own.constraint is not None for own in each.trainable_variables)
    ]
    for what, names in (("penalties", penalties), ("constraints", constraints)):
        if names:
            raise ConfigurationError(
                f"the model {model.name!r} has {what} in {', '.join(names)}, which a Network that is trained "
                "does not know: leave them out, or train the Keras model itself, executor='tensorflow'"
            )


def _converted(to: Writer, layer: Any, values: Sequence[Value]) -> Value:
    return CONVERSIONS[type(layer).__name__](to, layer, values)


def _value(values: dict[int, Value], tensor: Any, reader: Any) -> Value:
    if id(tensor) not in values:
        raise ConfigurationError(
            f"{reader.name!r} reads a tensor that no layer makes, or another than the first one of a layer: "
            "let every operation be a layer with one output"
        )
    return values[id(tensor)]
