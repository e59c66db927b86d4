"""Collectives: a split network's exchanges, and one part of a Dropout, under each framework"""

from importlib import import_module
from typing import Any

from d5ray.operators import collectives as types
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext

MODULES = {
    "numpy": "arrays",
    "cupy": "arrays",
    "torch": "torch_collectives",
    "tensorflow": "tensorflow_collectives",
}


def is_known(node: Node) -> bool:
    """True if the node is of the domain of collectives, and of a type that there is."""
    return node.domain == types.DOMAIN and node.type in (*types.EXCHANGING, types.DROPOUT)


def implementation(framework: str, context: NodeContext) -> Any:
    """An `ArrayOperator` for numpy and cupy, what is `Kernel` of the node for torch and tensorflow.

    Raises `ConfigurationError` where the executor was given no collectives, or those of another part.
    """
    return import_module(f"d5ray.ops.collective.{MODULES[framework]}").implementation(context)
