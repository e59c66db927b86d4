"""Collectives: a split network's exchanges, and one part of a Dropout, under each framework"""

from importlib import import_module
from typing import Any

from d5ray.operators.nodes.node_context import NodeContext

MODULES = {"numpy": "arrays", "cupy": "arrays", "torch": "torch", "tensorflow": "tensorflow"}


def implementation(framework: str, context: NodeContext) -> Any:
    """An `ArrayOperator` for numpy and cupy, what is `Kernel` of the node for torch and tensorflow.

    Raises `ConfigurationError` where the executor was given no collectives, or those of another part.
    """
    return import_module(f"d5ray.kits.parallel.collectives.{MODULES[framework]}").implementation(context)
