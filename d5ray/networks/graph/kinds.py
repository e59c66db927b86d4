"""Kinds of values of a graph: a parameter, which is trained, a constant, or a state that steps replace"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import onnx

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.graph import Array, Graph
from d5ray.networks.graph.protos import OPSET
from d5ray.networks.graph.tensors import is_floating
from d5ray.operators.nodes.node import Node

# A BatchNormalization in training reads its running mean and variance here, and makes the next ones there.
RUNNING = {3: 1, 4: 2}


def is_training(node: Node) -> bool:
    """True if the node is a BatchNormalization that keeps statistics."""
    return (
        node.type == "BatchNormalization" and not node.domain and bool(node.attributes.get("training_mode"))
    )


def state_of(graph: Graph) -> dict[str, str]:
    """The state that a training step replaces, each with the tensor that replaces it."""
    return {
        node.inputs[read]: node.outputs[made]
        for node in graph.nodes
        if is_training(node)
        for read, made in RUNNING.items()
        if read < len(node.inputs) and made < len(node.outputs) and node.outputs[made]
        if node.inputs[read] in graph.state_values
    }


def check_state(graph: Graph) -> None:
    """Raise `ConfigurationError` where one state would be replaced by two nodes."""
    owners: dict[str, Node] = {}
    for node in graph.nodes:
        for read, made in RUNNING.items():
            if not is_training(node) or not (made < len(node.outputs) and node.outputs[made]):
                continue
            name = node.inputs[read] if read < len(node.inputs) else ""
            if name in graph.parameters:
                raise ConfigurationError(
                    f"the node {node} replaces {name!r}, which is a parameter, in every training step: let "
                    "it be a state (add_state), which is not trained"
                )
            if name in graph.state_values and name in owners:
                raise ConfigurationError(
                    f"the nodes {owners[name]} and {node} both replace the state {name!r}: give each one "
                    "its own"
                )
            owners[name] = node


def sorted_out(
    values: Mapping[str, Array], nodes: Iterable[Node], marked: Mapping[str, str]
) -> dict[str, dict[str, Array]]:
    """The values by what they are: "parameters", "constants" and "state_values".

    marked: what is known of some, by their names. Of the others those are trained that are of a
    floating-point type and read where an operator can be differentiated.
    """
    trained: set[str] = set()
    kept: set[str] = set()
    fixed: set[str] = set()
    for node in nodes:
        slots = _fixed_slots(node.domain, node.type)
        for slot, name in enumerate(node.inputs):
            if is_training(node) and slot in RUNNING:
                kept.add(name)
            elif slot in slots:
                fixed.add(name)
            elif name:
                trained.add(name)
    found: dict[str, dict[str, Array]] = {"parameters": {}, "constants": {}, "state_values": {}}
    for name, value in values.items():
        found[_kind(name, is_floating(value.dtype), marked.get(name), trained, kept, fixed)][name] = value
    return found


@lru_cache(1024)
def _fixed_slots(domain: str, kind: str) -> frozenset[int]:
    """The inputs of a node in which no gradient arrives, by ONNX's definition of its type."""
    if domain or not onnx.defs.has(kind):
        return frozenset()
    if kind == "BatchNormalization":
        return frozenset(RUNNING)
    schema = onnx.defs.get_schema(kind, OPSET)
    never = onnx.defs.OpSchema.DifferentiationCategory.NonDifferentiable
    return frozenset(
        slot for slot, each in enumerate(schema.inputs) if each.differentiation_category == never
    )


def _kind(
    name: str, floating: bool, mark: str | None, trained: set[str], kept: set[str], fixed: set[str]
) -> str:
    if name in kept:
        return "state_values"
    if mark == "constants" or not floating:
        return "constants"
    if mark in ("parameters", "state_values"):
        return mark
    return "constants" if name in fixed and name not in trained else "parameters"
