"""Look-up of the implementation of an operator: the catalogue's, or the user's own"""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any

from d5ray.errors import ConfigurationError, nearest
from d5ray.names.kits import found
from d5ray.operators.custom.registry import registered
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops import catalogue, custom

OWN_DOMAINS = ("", "ai.onnx", catalogue.DOMAIN)  # whose types stand in the catalogue
FRAMEWORKS = ("numpy", "cupy", "torch", "tensorflow")


def implementation(framework: str, context: NodeContext) -> Any:
    """An `ArrayOperator` for numpy and cupy, what is `Kernel` of the node for torch and tensorflow.

    Raises `ConfigurationError` where the catalogue has no such type and none is registered.
    """
    node = context.node
    check_supported(framework, [node])
    of_kit = found("operators", f"{node.domain}.{node.type}")
    if of_kit is not None:
        return of_kit(framework, context)
    if not _in_catalogue(framework, node):
        return custom.implementation(framework, context)
    entry = _table(framework)[node.type]
    if framework in ("numpy", "cupy"):
        return entry
    try:
        return entry(context)
    except ConfigurationError as error:
        if str(node) in str(error):
            raise
        raise ConfigurationError(f"{node}: {error}") from error


def check_supported(framework: str, nodes: Iterable[Node]) -> None:
    """Raise one `ConfigurationError` that names every operator type that the framework has not."""
    missing: dict[str, list[Node]] = {}
    for node in nodes:
        name = f"{node.domain}.{node.type}" if node.domain else node.type
        known = _in_catalogue(framework, node) or found("operators", name)
        if not known and registered(node.domain, node.type) is None:
            missing.setdefault(name, []).append(node)
    if not missing:
        return
    listed = "; ".join(
        f"{kind} ({len(found)} times, first {_called(found[0])})" for kind, found in sorted(missing.items())
    )
    one = len(missing) == 1
    hint = f" ({nearest(next(iter(missing)), _table(framework))})" if one and len(_table(framework)) else ""
    raise ConfigurationError(
        f"{framework} has no operator for {listed}{hint}: register {'it' if one else 'them'} with "
        "d5ray.register_operator, or replace the nodes"
    )


def _called(node: Node) -> str:
    if node.name:
        return repr(node.name)
    return f"the one that makes {next((name for name in node.outputs if name), '')!r}"


def _in_catalogue(framework: str, node: Node) -> bool:
    return node.domain in OWN_DOMAINS and node.type in _table(framework)


@cache
def _table(framework: str) -> Any:
    """The catalogue of a framework by type of operator; imports the framework."""
    if framework in ("numpy", "cupy"):
        return import_module("d5ray.ops.arrays").OPERATORS
    return import_module(f"d5ray.ops.{framework}").FACTORIES
