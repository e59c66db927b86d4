"""Conversion between ONNX's messages and d5ray's: nodes, attributes, descriptors."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.tensors import dtype_from, value_of
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

OPSET = 28  # ONNX's operator set whose meaning nodes have
IR_VERSION = 13
KINDS: Mapping[int, str] = {
    onnx.AttributeProto.FLOAT: "a number",
    onnx.AttributeProto.INT: "an integer",
    onnx.AttributeProto.STRING: "a text",
    onnx.AttributeProto.TENSOR: "a NumPy array",
    onnx.AttributeProto.FLOATS: "a tuple of numbers",
    onnx.AttributeProto.INTS: "a tuple of integers",
    onnx.AttributeProto.STRINGS: "a tuple of texts",
}  # of attributes


def node_from(proto: onnx.NodeProto, folder: Path | None = None) -> Node:
    """The node that a message describes; tensors among its attributes may stand in files of the folder."""
    return Node(
        proto.op_type,
        tuple(proto.input),
        tuple(proto.output),
        MappingProxyType({each.name: _attribute_from(each, proto, folder) for each in proto.attribute}),
        proto.name,
        "" if proto.domain == "ai.onnx" else proto.domain,
    )


def node_to(node: Node) -> onnx.NodeProto:
    """The message that describes a node."""
    proto = helper.make_node(
        node.type, list(node.inputs), list(node.outputs), name=node.name or None, domain=node.domain or None
    )
    expected = attribute_types(node)
    for name in sorted(node.attributes):
        if node.attributes[name] is not None:
            proto.attribute.append(_attribute_to(node, name, node.attributes[name], expected.get(name)))
    return proto


def attribute_types(node: Node) -> dict[str, int]:
    """The kinds of the attributes that ONNX's definition of a type names; none for what is not ONNX's."""
    if node.domain or not onnx.defs.has(node.type):
        return {}
    attributes: Any = onnx.defs.get_schema(node.type, OPSET).attributes
    return {name: int(each.type) for name, each in attributes.items()}


def descriptor_from(proto: onnx.TypeProto, what: str) -> TensorDescriptor | None:
    """The descriptor of a tensor, None where its type is not known.

    Raises `ConfigurationError` for what is no tensor (a sequence, a map) or has elements NumPy has not.
    """
    kind = proto.WhichOneof("value")
    if kind is None:
        return None
    if kind != "tensor_type":
        raise ConfigurationError(
            f"{what} is a {kind.removesuffix('_type')}: networks of d5ray hold tensors only"
        )
    tensor = proto.tensor_type
    if tensor.elem_type == onnx.TensorProto.UNDEFINED:
        return None
    if not tensor.HasField("shape"):
        return TensorDescriptor(dtype_from(tensor.elem_type, what), None)
    sizes: list[int | str | None] = []
    for axis, each in enumerate(tensor.shape.dim):
        if each.WhichOneof("value") == "dim_value":
            if each.dim_value < 0:
                raise ConfigurationError(
                    f"{what} has a size of {each.dim_value} on axis {axis}: sizes are integers from 0 up"
                )
            sizes.append(each.dim_value)
        else:
            sizes.append(each.dim_param or None)
    return TensorDescriptor(dtype_from(tensor.elem_type, what), sizes)


def type_of(descriptor: TensorDescriptor) -> onnx.TypeProto:
    """The message that describes a descriptor."""
    return helper.make_tensor_type_proto(
        helper.np_dtype_to_tensor_dtype(descriptor.dtype),
        None if descriptor.shape is None else list(descriptor.shape),
    )


def value_info(name: str, descriptor: TensorDescriptor | None = None) -> onnx.ValueInfoProto:
    """A tensor with its type, as far as it is known."""
    proto = onnx.ValueInfoProto()
    proto.name = name
    if descriptor is not None:
        proto.type.CopyFrom(type_of(descriptor))
    return proto


def same_attributes(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """True if both messages have the same attributes, arrays compared by type and value."""
    return first.keys() == second.keys() and all(_same(first[name], second[name]) for name in first)


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        one, other = np.asarray(first), np.asarray(second)
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return bool(first == second)


def _attribute_from(proto: onnx.AttributeProto, node: onnx.NodeProto, folder: Path | None) -> Any:
    kinds = onnx.AttributeProto
    match proto.type:
        case kinds.FLOAT:
            return proto.f
        case kinds.INT:
            return proto.i
        case kinds.STRING:
            return proto.s.decode(errors="replace")
        case kinds.FLOATS:
            return tuple(proto.floats)
        case kinds.INTS:
            return tuple(proto.ints)
        case kinds.STRINGS:
            return tuple(each.decode(errors="replace") for each in proto.strings)
        case kinds.TENSOR:
            return value_of(proto.t, folder, f"the attribute {proto.name!r} of {node.name} ({node.op_type})")
    raise ConfigurationError(
        f"the attribute {proto.name!r} of the node {node.name} ({node.op_type}) is of the kind "
        f"{kinds.AttributeType.Name(proto.type)}: attributes are numbers, texts, tuples of them, or tensors"
    )


def _attribute_to(node: Node, name: str, value: Any, kind: int | None) -> onnx.AttributeProto:
    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value)
    try:
        return helper.make_attribute(name, list(value) if isinstance(value, tuple) else value, attr_type=kind)
    except (TypeError, ValueError, AssertionError) as error:
        wanted = KINDS.get(kind or 0, "a number, a text, a tuple of them, or a NumPy array")
        raise ConfigurationError(
            f"the attribute {name}={value!r} of the node {node} is none: it must be {wanted}"
        ) from error
