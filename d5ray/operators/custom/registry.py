"""Custom operators under a name of an ONNX domain, for use inside a network"""

from collections.abc import Callable, Mapping
from typing import Any

from d5ray.errors import ConfigurationError, D5Error, first_line, nearest
from d5ray.operators.custom.custom_operator import CustomOp
from d5ray.operators.nodes import inference
from d5ray.operators.nodes.node import Attribute, Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

Factory = Callable[[Mapping[str, Attribute]], CustomOp]  # from a node's attributes

_OWN = ("", "ai.onnx", "d5ray")  # domains whose types the catalogue holds
_registered: dict[tuple[str, str], Factory] = {}


def register_operator(domain: str, type: str, operator: Any) -> None:
    """Register an operator for nodes of this domain and type, from now on in this process.

    operator: a `CustomOp`, a class of them, or a function that returns one; the node's attributes are the
    arguments, by name. If an operator does not describe its outputs, networks assume the type of its first
    input. A second registration replaces the first. Raises `ConfigurationError` for a domain of the
    catalogue, and for an object that is not an operator.
    """
    if not isinstance(domain, str) or domain in _OWN:
        raise ConfigurationError(
            f"{domain!r} is no domain for operators of your own: take one such as 'my.domain'; the "
            "catalogue's are " + ", ".join(repr(each) for each in _OWN)
        )
    if not isinstance(type, str) or not type.isidentifier():
        raise ConfigurationError(f"{type!r} is no name of an operator type: take one such as 'IPow'")
    _registered[domain, type] = _factory(f"{domain}.{type}", operator)
    inference.register(domain, type, _inferred)  # type: ignore[arg-type]  # None stands for what is unknown


def registered(domain: str, type: str) -> Factory | None:
    """The factory of operators of this domain and type from a node's attributes, None if there is none."""
    return _registered.get((domain, type))


def operator_of(node: Node) -> CustomOp:
    """The operator of a node. Raises `ConfigurationError`, naming the node, where there is none."""
    factory = registered(node.domain, node.type)
    if factory is None:
        names = [f"{domain}.{type}" for domain, type in _registered]
        raise ConfigurationError(
            f"the node {node} needs the operator {node.domain}.{node.type}, which nobody has registered: "
            f"call d5ray.register_operator({node.domain!r}, {node.type!r}, operator) before "
            f"({nearest(f'{node.domain}.{node.type}', names)})"
        )
    try:
        return factory(node.attributes)
    except D5Error as error:
        raise type(error)(f"the node {node}: {error}") from error


def _inferred(context: NodeContext) -> tuple[TensorDescriptor | None, ...]:
    """The descriptors of a node's outputs that a network knows.

    Of an operator that does not say it, that they are of the first input's type; None where that is unknown.
    """
    operator = operator_of(context.node)
    outputs = operator.inferred(context.inputs)
    if outputs is None:
        first = next((each for each in context.inputs if each is not None), None)
        guess = None if first is None else TensorDescriptor(first.dtype, None)
        return (guess,) * len(context.node.outputs)
    return outputs


def _factory(name: str, operator: Any) -> Factory:
    if isinstance(operator, CustomOp):
        return lambda attributes: _instance(name, operator, attributes)
    if callable(operator):
        return lambda attributes: _made(name, operator, attributes)
    raise ConfigurationError(
        f"{operator!r} cannot be registered as {name}: give a CustomPythonOp, a compiled operator, a class "
        "of them, or a function that gives one"
    )


def _instance(name: str, operator: CustomOp, attributes: Mapping[str, Attribute]) -> CustomOp:
    if attributes:
        raise ConfigurationError(
            f"has the attributes {', '.join(attributes)}, but {name} is registered as one operator, which "
            "takes none: register its class, or a function with these parameters"
        )
    return operator


def _made(name: str, make: Callable[..., Any], attributes: Mapping[str, Attribute]) -> CustomOp:
    try:
        made = make(**attributes)
    except D5Error:
        raise
    except Exception as error:  # whatever the user's class objects to
        raise ConfigurationError(
            f"{name} cannot be made of the attributes {dict(attributes)}: {first_line(error)}"
        ) from error
    if not isinstance(made, CustomOp):
        raise ConfigurationError(
            f"what is registered as {name} gave {made!r}, expected a CustomPythonOp or a compiled operator"
        )
    return made
