"""Fingerprints of nodes: equal where the same is computed of the same inputs, whatever it is called"""

import hashlib
from typing import Any

import numpy as np

from d5ray.networks.graph.graph import Graph
from d5ray.operators.nodes.node import Node

OUTSIDE = "what comes from outside"


def fingerprints(graph: Graph) -> dict[str, str]:
    """The fingerprint of every node by its name: its type, attributes, and the fingerprints of what it reads.

    Inputs of the network count with name, type and shape, constants with their values, parameters and state
    with type and shape.
    """
    of = tensor_fingerprints(graph)
    return {node.name: _of_node(node, of) for node in graph.nodes}


def tensor_fingerprints(graph: Graph) -> dict[str, str]:
    """The fingerprint of every tensor, by its name."""
    of = {"": "nothing"}
    of |= {name: f"input {name} {each}" for name, each in graph.inputs.items()}
    of |= {name: f"parameter {each.dtype} {each.shape}" for name, each in graph.parameters.items()}
    of |= {name: f"state {each.dtype} {each.shape}" for name, each in graph.state_values.items()}
    of |= {name: f"constant {_digest(_plain(each))}" for name, each in graph.constants.items()}
    for node in graph.nodes:
        own = _of_node(node, of)
        of |= {name: f"{own} {slot}" for slot, name in enumerate(node.outputs) if name}
    return of


def same_attributes(first: Node, second: Node) -> bool:
    """True if both nodes have the same attributes, tensors among them by value."""
    return bool(_attributes(first) == _attributes(second))


def _of_node(node: Node, of: dict[str, str]) -> str:
    read = list(node.inputs)
    while read and not read[-1]:
        read.pop()
    return _digest(repr((node.domain, node.type, _attributes(node), [of[name] for name in read])))


def _attributes(node: Node) -> list[tuple[str, str]]:
    return [(name, _plain(value)) for name, value in sorted(node.attributes.items()) if value is not None]


def _plain(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return (
            f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
        )
    return repr(value)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
