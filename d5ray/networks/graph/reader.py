"""A graph from an ONNX model: checked, its functions inlined, in the newest operator set."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import final

import numpy as np
import onnx
from onnx import checker, helper, inliner, numpy_helper, shape_inference

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.control_flow import decided
from d5ray.networks.graph.files import open_model
from d5ray.networks.graph.functions import check_functions
from d5ray.networks.graph.graph import Array, Graph, check_names, in_order
from d5ray.networks.graph.inference import MOST_ELEMENTS, reason
from d5ray.networks.graph.kinds import sorted_out
from d5ray.networks.graph.older_sets import check_meaning, converted
from d5ray.networks.graph.protos import IR_VERSION, OPSET, descriptor_from, node_from
from d5ray.networks.graph.schemas import (
    CONTROL_FLOW,
    defaults,
    function_of,
    is_defined_by_others,
    is_supported,
    refuse,
)
from d5ray.networks.graph.tensors import read_only, value_of
from d5ray.networks.graph.writer import KIND
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

# What the conversion of older operator sets makes something else of.
WRITTEN_OUT = "d5ray.written_out"  # of the functions that stand for nodes, until they are inlined
MOST_DEEP = 16  # functions and loops within one another
CONVERTED = frozenset({"Constant", "Scatter", "Upsample"})


@final
@dataclass(frozen=True)
class _Values:
    """The values that the initializers of a model hold, and the kinds that it states for them."""

    arrays: dict[str, Array] = field(default_factory=dict)
    marked: dict[str, str] = field(default_factory=dict)


def read(source: str | PathLike[str] | bytes | onnx.ModelProto) -> tuple[Graph, dict[str, TensorDescriptor]]:
    """The graph of a model, and what the model says of its outputs.

    Raises `ConfigurationError` for what is corrupt, or cannot be computed.

    Before ONNX's own code sees the model, the values are taken out of it, and it is known to be whole and
    without circles.
    """
    opened = open_model(source)
    model, folder, what = opened.model, opened.folder, opened.what
    version = _version(model, what)
    values = _take_values(model.graph, folder, what)
    _check_tensors(model.graph, values, what)
    refuse(_missing(model))
    check_meaning(model, version, what)
    check_functions(model, what)
    model.ir_version = max(model.ir_version, IR_VERSION)  # the values have left the inputs
    _check_by_onnx(model, what)
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    declared = {
        each.name: descriptor_from(
            each.type, f"the output {each.name!r} of {makers.get(each.name, 'the model')}"
        )
        for each in model.graph.output
    }
    model = _written_out(converted(_inlined(model, what), version, what), what)
    graph = _graph(model.graph, values, folder)
    return graph, {name: each for name, each in declared.items() if each is not None}


def check_declared(declared: Mapping[str, TensorDescriptor], found: Mapping[str, TensorDescriptor]) -> None:
    """Raise `ConfigurationError` where the model's outputs are not what it says of them."""
    for name, wanted in declared.items():
        if name in found and not _fits(wanted, found[name]):
            raise ConfigurationError(
                f"the model says that its output {name!r} is {wanted}, and its nodes make it {found[name]}: "
                "the model is corrupt, or its output's type is out of date"
            )


def _fits(first: TensorDescriptor, second: TensorDescriptor) -> bool:
    """True if both descriptors can describe one tensor."""
    if first.dtype != second.dtype:
        return False
    if first.shape is None or second.shape is None:
        return True
    return len(first.shape) == len(second.shape) and all(
        one == other or not isinstance(one, int) or not isinstance(other, int)
        for one, other in zip(first.shape, second.shape, strict=True)
    )


def _version(model: onnx.ModelProto, what: str) -> int:
    """The operator set in which the model is written."""
    if not model.HasField("graph"):
        raise ConfigurationError(f"{what} is no ONNX model: it has no graph")
    if model.ir_version > onnx.IR_VERSION:
        raise ConfigurationError(
            f"{what} is of ONNX's format {model.ir_version}, and the installed onnx {onnx.__version__} "
            f"reads up to {onnx.IR_VERSION}: update onnx, or export the model in an older format"
        )
    found = {each.version for each in model.opset_import if each.domain in ("", "ai.onnx")}
    if len(found) > 1:
        raise ConfigurationError(
            f"{what} names several operator sets of ONNX, {sorted(found)}: it must name one"
        )
    if not found and any(each.domain in ("", "ai.onnx") for each in model.graph.node):
        raise ConfigurationError(f"{what} does not say in which of ONNX's operator sets it is written")
    version = found.pop() if found else OPSET
    if not 1 <= version <= OPSET:
        raise ConfigurationError(
            f"{what} is written in ONNX's operator set {version}, and d5ray knows 1 to {OPSET}: export it "
            f"again with opset_version={OPSET} or less"
        )
    return version


def _take_values(graph: onnx.GraphProto, folder: Path | None, what: str) -> _Values:
    """The values of the initializers, which leave the graph: the large ones become inputs of it."""
    if graph.sparse_initializer:
        raise ConfigurationError(
            f"{what} holds the sparse tensor {graph.sparse_initializer[0].values.name!r}: make it a dense one"
        )
    values = _Values()
    small = []
    for tensor in graph.initializer:
        name = tensor.name
        if name in values.arrays:
            raise ConfigurationError(f"{what} holds the tensor {name!r} twice: give one another name")
        values.arrays[name] = value_of(tensor, folder, f"the tensor {name!r}")
        for each in tensor.metadata_props:
            if each.key == KIND:
                values.marked[name] = each.value
        if values.arrays[name].size <= MOST_ELEMENTS:
            small.append(numpy_helper.from_array(values.arrays[name], name))
    names = {tensor.name for tensor in small}
    given = [each for each in graph.input if each.name not in values.arrays]
    large = [
        helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
        for tensor in graph.initializer
        if tensor.name not in names
    ]
    for repeated, new in ((graph.initializer, small), (graph.input, [*given, *large])):
        del repeated[:]
        repeated.extend(new)
    return values


def _check_tensors(graph: onnx.GraphProto, values: _Values, what: str) -> None:
    """Raise `ConfigurationError` unless every tensor is made once, before or after those who read it."""
    given: dict[str, TensorDescriptor] = {}
    for each in graph.input:
        if each.name in given:
            raise ConfigurationError(f"{what} has the input {each.name!r} twice: give one another name")
        if each.name not in values.arrays:
            given[each.name] = _read_input(each, graph)
    _name_nodes(graph.node)
    nodes = tuple(
        Node(each.op_type, tuple(each.input), tuple(each.output), name=each.name) for each in graph.node
    )
    plain = Graph(
        nodes=nodes, inputs=given, outputs=tuple(each.name for each in graph.output), constants=values.arrays
    )
    check_names(plain)
    if (order := in_order(plain)) != nodes:  # ONNX demands an order that some writers do not keep
        protos = {each.name: each for each in graph.node}
        ordered = [protos[node.name] for node in order]
        del graph.node[:]
        graph.node.extend(ordered)


def _read_input(proto: onnx.ValueInfoProto, graph: onnx.GraphProto) -> TensorDescriptor:
    try:
        return _input(proto)
    except ConfigurationError as error:
        readers = [node.op_type for node in graph.node if proto.name in node.input]
        raise ConfigurationError(f"{error} ({' and '.join(readers) or 'nothing'} reads it)") from error


def _input(proto: onnx.ValueInfoProto) -> TensorDescriptor:
    found = descriptor_from(proto.type, f"the input {proto.name!r}")
    if found is None:
        raise ConfigurationError(f"the input {proto.name!r} has no type: say of which type and shape it is")
    return found


def _name_nodes(nodes: Iterable[onnx.NodeProto]) -> None:
    """Give every node a name of its own: ONNX does without."""
    names: set[str] = set()
    counts: dict[str, int] = {}
    for node in nodes:
        base = node.name or node.op_type
        name = base
        while name in names:
            counts[base] = counts.get(base, 1) + 1
            name = f"{base}_{counts[base]}"
        names.add(name)
        node.name = name


def _missing(model: onnx.ModelProto) -> list[Node]:
    """The nodes, also within functions, that d5ray cannot compute, and no conversion helps."""
    own = {(each.domain, each.name) for each in model.functions}
    protos = [*model.graph.node, *(node for each in model.functions for node in each.node)]
    return _those(
        protos,
        lambda kind: (
            not (
                (kind.domain, kind.type) in own
                or (not kind.domain and kind.type in CONVERTED)
                or is_supported(kind)
                or _decides(kind)
                or is_defined_by_others(kind)
            )
        ),
    )


def _those(protos: Iterable[onnx.NodeProto], wanted: Callable[[Node], bool]) -> list[Node]:
    """The nodes, by their names, of the operator types that are wanted; each type is looked at once."""
    known: dict[tuple[str, str], bool] = {}
    found = []
    for proto in protos:
        key = (proto.domain, proto.op_type)
        if key not in known:
            known[key] = wanted(_kind(proto))
        if known[key]:
            found.append(replace(_kind(proto), name=proto.name))
    return found


def _kind(proto: onnx.NodeProto) -> Node:
    """Everything that is known of a node by its operator type."""
    return Node(proto.op_type, (), (), domain="" if proto.domain == "ai.onnx" else proto.domain)


def _check_by_onnx(model: onnx.ModelProto, what: str) -> None:
    """Raise `ConfigurationError` for what ONNX's own checker finds, but for shapes that nobody knows."""
    graph = model.graph
    kept = [(values, list(values)) for values in (graph.input, graph.output)]
    del graph.output[:]
    for each in graph.input:
        if not each.type.tensor_type.HasField("shape"):
            each.type.tensor_type.shape.SetInParent()
    try:
        checker.check_model(model)
    except Exception as error:  # ONNX's own code raises whatever it comes upon
        raise ConfigurationError(f"{what} breaks a rule of ONNX: {reason(error)}") from error
    for values, before in kept:
        del values[:]
        values.extend(before)


def _inlined(model: onnx.ModelProto, what: str) -> onnx.ModelProto:
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:
        raise ConfigurationError(f"the functions of {what} cannot be inlined: {reason(error)}") from error


def _written_out(model: onnx.ModelProto, what: str) -> onnx.ModelProto:
    """The model without control flow, and with ONNX's functions for operators that only they compute."""
    for _ in range(MOST_DEEP):
        if not _those(model.graph.node, lambda kind: is_defined_by_others(kind) or _decides(kind)):
            break
        _with_types_of_values(model.graph)
        model = decided(_inferred(_expanded(_inferred(model, what), what), what), what)
    refuse(_those(model.graph.node, lambda kind: kind.type not in CONVERTED and not is_supported(kind)))
    return model


def _decides(kind: Node) -> bool:
    """True if the node is a branch or a loop, which may be decided before anything runs."""
    return not kind.domain and kind.type in CONTROL_FLOW


def _inferred(model: onnx.ModelProto, what: str) -> onnx.ModelProto:
    try:
        return shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # ONNX's own code raises whatever it comes upon
        raise ConfigurationError(f"{what} does not fit together: {reason(error)}") from error


def _with_types_of_values(graph: onnx.GraphProto) -> None:
    """ONNX looks for the types of initializers elsewhere alone."""
    known = {each.name for each in graph.input}
    for tensor in graph.initializer:
        if tensor.name not in known:
            graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )


def _expanded(model: onnx.ModelProto, what: str) -> onnx.ModelProto:
    """The model with the functions that ONNX's standard has for its operators, each one of its own."""
    graph = model.graph
    types = {each.name: each.type.SerializeToString() for each in (*graph.input, *graph.value_info)}
    wanted = {each.type for each in _those(graph.node, is_defined_by_others)}
    for number, proto in enumerate(graph.node):
        node = _kind(proto)
        if node.type not in wanted or not is_defined_by_others(node):
            continue
        proto.attribute.extend(defaults(proto))
        body = onnx.FunctionProto()
        body.ParseFromString(function_of(node, proto, [types.get(name, b"") for name in proto.input]))
        body.domain, body.name = WRITTEN_OUT, f"{proto.op_type}_{number}"
        proto.domain, proto.op_type = body.domain, body.name
        model.functions.append(body)
    if not model.functions:
        return model
    model.opset_import.append(helper.make_opsetid(WRITTEN_OUT, 1))
    try:
        made = inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:
        names = ", ".join(each.name for each in model.functions)
        raise ConfigurationError(
            f"the operators {names} of {what} cannot be written out: {reason(error)}"
        ) from error
    return made


def _graph(graph: onnx.GraphProto, values: _Values, folder: Path | None) -> Graph:
    _name_nodes(graph.node)
    arrays, marked = dict(values.arrays), dict(values.marked)
    for tensor in graph.initializer:  # those that the conversion added
        if tensor.name not in arrays:
            arrays[tensor.name] = value_of(tensor, folder, f"the tensor {tensor.name!r}")
            marked[tensor.name] = "constants"
    nodes = []
    for proto in graph.node:
        if proto.op_type == "Constant" and proto.domain in ("", "ai.onnx"):
            arrays[proto.output[0]] = _constant(proto, folder)
            marked[proto.output[0]] = "constants"
        else:
            nodes.append(node_from(proto, folder))
    return Graph(
        graph.name or "network",
        tuple(nodes),
        {each.name: _input(each) for each in graph.input if each.name not in arrays},
        tuple(each.name for each in graph.output),
        **sorted_out(arrays, nodes, marked),
    )


def _constant(proto: onnx.NodeProto, folder: Path | None) -> Array:
    """The value of a Constant node, however it is written."""
    given = list(_attributes_of_constant(proto))
    if len(given) != 1:
        raise ConfigurationError(
            f"the node {proto.name} (Constant) must have one value, and has {len(given)}"
        )
    attribute = given[0]
    what = f"the constant {proto.output[0]!r}"
    match attribute.name:
        case "value":
            return value_of(attribute.t, folder, what)
        case "value_float":
            return read_only(np.asarray(attribute.f, np.float32))
        case "value_floats":
            return read_only(np.asarray(attribute.floats, np.float32))
        case "value_int":
            return read_only(np.asarray(attribute.i, np.int64))
        case "value_ints":
            return read_only(np.asarray(attribute.ints, np.int64))
    raise ConfigurationError(
        f"{what} is given by {attribute.name!r}: networks of d5ray hold dense numbers only"
    )


def _attributes_of_constant(proto: onnx.NodeProto) -> Iterator[onnx.AttributeProto]:
    yield from (each for each in proto.attribute if each.name.startswith(("value", "sparse_value")))
