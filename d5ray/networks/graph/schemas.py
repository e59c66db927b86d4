"""Schemas: the attributes, inputs, outputs and types that ONNX's definition of an operator demands"""

from collections.abc import Iterable, Mapping
from typing import Any

import onnx

from d5ray.errors import ConfigurationError, nearest
from d5ray.networks.graph.protos import OPSET
from d5ray.operators.nodes import inference as rules
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.catalogue import TYPES

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
Options = onnx.defs.OpSchema.FormalParameterOption


def is_supported(node: Node) -> bool:
    """True if d5ray can compute a node of this type."""
    if rules.registered(node.domain, node.type) is not None:
        return True
    return node.domain == "" and node.type in TYPES and onnx.defs.has(node.type)


def is_defined_by_others(node: Node) -> bool:
    """True if ONNX's standard has a function for this type, of other operators, and d5ray has none."""
    if is_supported(node) or not onnx.defs.has(node.type, node.domain):
        return False
    schema = schema_of(node.type, node.domain)
    return bool(schema.has_function or schema.has_context_dependent_function)


def schema_of(kind: str, domain: str) -> Any:
    """ONNX's newest definition of an operator type."""
    return onnx.defs.get_schema(kind, OPSET, domain) if not domain else onnx.defs.get_schema(kind, domain)


def function_of(node: Node, proto: onnx.NodeProto, inputs: list[bytes]) -> bytes:
    """The body of ONNX's function for a node, in the newest version; inputs: their types, serialized.

    Raises `ConfigurationError` where ONNX has none for these inputs.
    """
    schema = schema_of(node.type, node.domain)
    try:
        if schema.has_context_dependent_function:
            version = max(schema.context_dependent_function_opset_versions)
            found = schema.get_context_dependent_function_with_opset_version(
                version, proto.SerializeToString(), inputs
            )
        else:
            found = schema.get_function_with_opset_version(max(schema.function_opset_versions))
    except Exception as error:  # ONNX's own code raises whatever it comes upon
        raise ConfigurationError(f"the node {node} cannot be written out in others: {error}") from error
    return bytes(found)


def defaults(proto: onnx.NodeProto) -> list[onnx.AttributeProto]:
    """The attributes that ONNX's definition gives a node that does not say them."""
    said = {each.name for each in proto.attribute}
    known = schema_of(proto.op_type, "" if proto.domain == "ai.onnx" else proto.domain).attributes
    return [
        each.default_value for name, each in known.items() if name not in said and each.default_value.type
    ]


def check_supported(nodes: Iterable[Node]) -> None:
    """Raise `ConfigurationError` that lists everything that cannot be computed, at once."""
    refuse([node for node in nodes if not is_supported(node)])


def refuse(nodes: Iterable[Node]) -> None:
    """Raise `ConfigurationError` that lists the types of these nodes, if there are any."""
    missing: dict[str, list[Node]] = {}
    for node in nodes:
        missing.setdefault(f"{node.domain}.{node.type}" if node.domain else node.type, []).append(node)
    if not missing:
        return
    shown = ", ".join(
        f"{kind} (at {found[0].name!r}{f' and {len(found) - 1} more' if len(found) > 1 else ''})"
        for kind, found in sorted(missing.items())
    )
    count = "an operator type" if len(missing) == 1 else f"{len(missing)} operator types"
    advice = "register custom operators for them, or replace these nodes before"
    raise ConfigurationError(f"the network uses {count} that d5ray does not have: {shown}; {advice}")


def check_node(node: Node, known: Mapping[str, TensorDescriptor]) -> None:
    """Raise `ConfigurationError` unless an ONNX node has the attributes, inputs and types it must have."""
    check_supported([node])
    schema = onnx.defs.get_schema(node.type, OPSET)
    _check_attributes(node, schema)
    _check_count(node, "inputs", node.inputs, schema.min_input, schema.max_input)
    _check_count(node, "outputs", node.outputs, schema.min_output, schema.max_output)
    _check_types(node, schema, known)


def mean_the_same(node: Node, opset: int, known: Mapping[str, TensorDescriptor]) -> bool:
    """True if an older operator set defines the node's type as the newest does, for this node.

    Most of the newer definitions only allow more types, or have one more attribute.

    >>> known = {name: TensorDescriptor("float32", (2,)) for name in "abc"}
    >>> mean_the_same(Node("Max", ("a", "b", "c"), ("d",)), 8, known)
    True
    """
    if node.domain:
        return True
    try:
        old = onnx.defs.get_schema(node.type, opset)
    except onnx.defs.SchemaError:
        return False
    new = onnx.defs.get_schema(node.type, OPSET)
    if old.since_version == new.since_version:
        return True
    attributes, before = _defaults(new), _defaults(old)
    return (
        all(attributes.get(name) == each for name, each in before.items())
        and not any(new.attributes[name].required for name in attributes.keys() - before.keys())
        and before.keys() >= node.attributes.keys()
        and _slots(old) == _slots(new)
        and all(
            _onnx_type(known[name]) in formals[min(slot, len(formals) - 1)].types
            for names, formals in ((node.inputs, old.inputs), (node.outputs, old.outputs))
            for slot, name in enumerate(names)
            if name in known
        )
    )


def _defaults(schema: onnx.defs.OpSchema) -> dict[str, object]:
    return {
        name: (each.type, each.required, each.default_value.SerializeToString())
        for name, each in schema.attributes.items()
    }


def _slots(schema: onnx.defs.OpSchema) -> object:
    return [[(each.name, each.option) for each in formals] for formals in (schema.inputs, schema.outputs)]


def _check_attributes(node: Node, schema: onnx.defs.OpSchema) -> None:
    for name, value in node.attributes.items():
        if name not in schema.attributes and value is not None:
            raise ConfigurationError(
                f"the node {node} has an attribute {name!r}, which {node.type} has not: "
                f"{nearest(name, schema.attributes)}"
            )
    for name, attribute in schema.attributes.items():
        if attribute.required and node.attributes.get(name) is None:
            raise ConfigurationError(f"the node {node} lacks the attribute {name!r}, which it must have")


def _check_count(node: Node, kind: str, names: tuple[str, ...], least: int, most: int) -> None:
    if least <= len(names) <= most:
        return
    wanted = f"{least}" if least == most else f"{least} or more" if most > 1000 else f"{least} to {most}"
    raise ConfigurationError(f"the node {node} has {len(names)} {kind} {names}, and must have {wanted}")


def _check_types(node: Node, schema: onnx.defs.OpSchema, known: Mapping[str, TensorDescriptor]) -> None:
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
    bound: dict[str, tuple[str, TensorDescriptor]] = {}
    for slot, name in enumerate(node.inputs):
        formal = schema.inputs[min(slot, len(schema.inputs) - 1)]
        if not name:
            if formal.option != Options.Optional:
                raise ConfigurationError(
                    f"the node {node} lacks its input {slot}, {formal.name!r}, which it must have"
                )
            continue
        if name not in known:
            continue
        found = known[name]
        kinds = allowed.get(formal.type_str, [formal.type_str])
        if _onnx_type(found) not in kinds:
            raise ConfigurationError(
                f"the node {node} cannot read {name!r}, which is {found}, as its input {slot}, "
                f"{formal.name!r}: it must be of {_kinds(kinds)}"
            )
        if formal.type_str in allowed and formal.is_homogeneous:
            other, first = bound.setdefault(formal.type_str, (name, found))
            if first.dtype != found.dtype:
                raise ConfigurationError(
                    f"the node {node} reads {other!r}, which is {first}, and {name!r}, which is {found}: "
                    "both must be of one type; put a Cast before one of them"
                )


def _onnx_type(descriptor: TensorDescriptor) -> str:
    kind = onnx.helper.np_dtype_to_tensor_dtype(descriptor.dtype)
    name = onnx.TensorProto.DataType.Name(kind).lower()
    return f"tensor({name})"


def _kinds(types: Iterable[str]) -> str:
    names = sorted(each.removeprefix("tensor(").removesuffix(")") for each in types)
    names = ["float32" if name == "float" else "float64" if name == "double" else name for name in names]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
