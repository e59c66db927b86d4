"""Changes of a graph, each of which gives another graph; whether it is valid is looked at afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.graph import Graph
from d5ray.networks.graph.protos import OPSET, attribute_types
from d5ray.networks.graph.tensors import read_only
from d5ray.operators.nodes.node import Node

FLOATS = (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS)
Options = onnx.defs.OpSchema.FormalParameterOption


def free(name: str, taken: Sequence[str] | set[str]) -> str:
    """The name, or with a number behind it where it is taken.

    >>> free("Relu", {"Relu", "Relu_2"})
    'Relu_3'
    """
    number, found = 1, name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def normalized(node: Node, name: str) -> Node:
    """The node under this name, of tuples, with attributes as an ONNX file keeps them."""
    kinds = attribute_types(node)
    attributes = {key: _attribute(value, kinds.get(key)) for key, value in node.attributes.items()}
    return replace(
        node,
        inputs=tuple(node.inputs),
        outputs=tuple(node.outputs),
        attributes=MappingProxyType(attributes),
        name=name,
    )


def _attribute(value: Any, kind: int | None) -> Any:
    """Numbers of ONNX's attributes are of type float32, so that 0.1 is 0.10000000149 from now on."""
    if isinstance(value, np.ndarray):
        return read_only(value.copy())
    if isinstance(value, (list, tuple)):
        return tuple(_attribute(each, kind) for each in value)
    if isinstance(value, (float, np.floating)):
        return float(np.float32(value))
    if isinstance(value, (int, np.integer, np.bool_)):
        return float(value) if kind in FLOATS else int(value)
    return value


def connected(graph: Graph, tensor: str, node: Node, slot: int) -> Graph:
    """Let a node read a tensor at a slot, in place of what it read there."""
    if slot < 0:
        raise ConfigurationError(f"input {slot} of the node {node} cannot be: slots are counted from 0")
    inputs = [*node.inputs, *[""] * (slot + 1 - len(node.inputs))]
    inputs[slot] = tensor
    return _swapped(graph, node, replace(node, inputs=tuple(inputs)))


def disconnected(graph: Graph, tensor: str, node: Node, slot: int | None) -> Graph:
    """Let a node no longer read a tensor: the slot is empty, or gone where a node takes any number."""
    slots = [place for place, name in enumerate(node.inputs) if name == tensor]
    if not slots or (slot is not None and slot not in slots):
        where = "" if slot is None else f" at its input {slot}"
        raise ConfigurationError(
            f"the node {node} does not read {tensor!r}{where}: it reads {', '.join(map(repr, node.inputs))}"
        )
    if slot is None and len(slots) > 1:
        raise ConfigurationError(
            f"the node {node} reads {tensor!r} at its inputs {slots}: say which one is meant"
        )
    place = slots[0] if slot is None else slot
    inputs = list(node.inputs)
    if _is_variadic(node, place):
        del inputs[place]
    else:
        inputs[place] = ""
        while inputs and not inputs[-1]:
            inputs.pop()
    return _swapped(graph, node, replace(node, inputs=tuple(inputs)))


def check_unused(graph: Graph, node: Node) -> None:
    """Raise `ConfigurationError` where somebody makes use of what a node makes."""
    readers = graph.readers()
    for name in node.outputs:
        uses = [f"is read by {each}" for each in readers.get(name, [])]
        uses += ["is an output of the network"] * (name in graph.outputs)
        if uses:
            raise ConfigurationError(
                f"the node {node} cannot be removed: {name!r} {' and '.join(uses)}; bypass or replace it, or "
                "make several changes one (changes)"
            )


def without(graph: Graph, node: Node) -> Graph:
    """The graph without a node."""
    return replace(graph, nodes=tuple(each for each in graph.nodes if each is not node))


def replaced(graph: Graph, node: Node, by: Sequence[Node]) -> Graph:
    """The graph with other nodes where one stood; those without a name are called after it."""
    taken = {each.name for each in graph.nodes if each is not node}
    new: list[Node] = []
    for each in by:
        wanted = each.name or (node.name if len(by) == 1 else f"{node.name}_{each.type}")
        name = wanted if each.name else free(wanted, taken)
        new.append(normalized(each, name))
        taken.add(name)
    place = graph.nodes.index(node)
    return replace(graph, nodes=(*graph.nodes[:place], *new, *graph.nodes[place + 1 :]))


def bypassed(graph: Graph, node: Node) -> Graph:
    """The graph without a node, whose readers read what it read first."""
    if not node.inputs or not node.inputs[0]:
        raise ConfigurationError(f"the node {node} reads nothing that its readers could read instead of it")
    source, made = node.inputs[0], node.outputs[0]
    left = without(graph, node)
    if made not in graph.outputs:
        return _rewired(left, {made: source})
    if source in left.producers() and source not in graph.outputs:
        return renamed(left, source, made)
    raise ConfigurationError(
        f"the node {node} makes {made!r}, an output of the network, of {source!r}, which must keep its name: "
        "there is no tensor that could be the output"
    )


def renamed(graph: Graph, old: str, new: str) -> Graph:
    """The graph in which a tensor has another name."""
    names = {old: new}

    def keys(values: Mapping[str, Any]) -> dict[str, Any]:
        return {names.get(name, name): each for name, each in values.items()}

    changed = _rewired(graph, names)
    return replace(
        changed,
        nodes=tuple(
            replace(node, outputs=tuple(names.get(name, name) for name in node.outputs))
            if old in node.outputs
            else node
            for node in changed.nodes
        ),
        inputs=keys(graph.inputs),
        outputs=tuple(names.get(name, name) for name in graph.outputs),
        parameters=keys(graph.parameters),
        constants=keys(graph.constants),
        state_values=keys(graph.state_values),
    )


def renamed_node(graph: Graph, node: Node, new: str) -> Graph:
    """The graph in which a node has another name."""
    return _swapped(graph, node, replace(node, name=new))


def pruned(graph: Graph, before: Graph) -> Graph:
    """The graph without the values that somebody read before, and nobody reads any more."""
    read = {name for node in before.nodes for name in node.inputs}
    read -= {name for node in graph.nodes for name in node.inputs}
    read -= set(graph.outputs)
    if not read:
        return graph

    def kept(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: each for name, each in values.items() if name not in read}

    return replace(
        graph,
        parameters=kept(graph.parameters),
        constants=kept(graph.constants),
        state_values=kept(graph.state_values),
    )


def _rewired(graph: Graph, names: Mapping[str, str]) -> Graph:
    """Nodes that read a tensor read another one."""
    nodes = tuple(
        replace(node, inputs=tuple(names.get(name, name) for name in node.inputs))
        if not names.keys().isdisjoint(node.inputs)
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def _swapped(graph: Graph, node: Node, new: Node) -> Graph:
    return replace(graph, nodes=tuple(new if each is node else each for each in graph.nodes))


def _is_variadic(node: Node, slot: int) -> bool:
    """True if the inputs from some slot on may be of any number, such as those of a Concat."""
    if node.domain or not onnx.defs.has(node.type):
        return False
    inputs = onnx.defs.get_schema(node.type, OPSET).inputs
    return slot >= len(inputs) - 1 and inputs[-1].option == Options.Variadic
