"""Types and shapes of all tensors of a graph: ONNX's own inference, node by node, and the rules of others."""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, final

import numpy as np
from onnx import helper, numpy_helper, shape_inference

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.graph import Graph, Values
from d5ray.networks.graph.open_sizes import counted, part_of, simplified, unscaled
from d5ray.networks.graph.protos import IR_VERSION, OPSET, descriptor_from, node_to, value_info
from d5ray.networks.graph.schemas import check_node
from d5ray.operators.nodes import inference as rules
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

Descriptors = Mapping[str, TensorDescriptor]
Alike = dict[Hashable, tuple[TensorDescriptor | None, ...]]  # what nodes make, by all that decides on it

SHAPE_TYPES = frozenset(
    {"Shape", "Size", "Gather", "Concat", "Slice", "Squeeze", "Unsqueeze", "Add", "Sub", "Mul", "Div", "Cast",
     "Identity", "Reshape"}
)  # fmt: skip
# What these make has the type and shape of what they read first; ONNX itself infers nothing for the one, and
# stumbles over the defaults of the other.
LIKE_THEIR_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
# Of these no floating-point number decides on a shape, so that a constant is to them like any other tensor.
DENSE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Clip", "Where", "PRelu", "Gemm", "MatMul", "Conv",
     "BatchNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization"}
)  # fmt: skip
# Defaults that ONNX's own inference forgets, and says the opposite.
FORGOTTEN = {"STFT": {"onesided": 1}}
MOST_ELEMENTS = 4096  # of a constant whose value matters for a shape
MOST_NODES = 64  # that lead from a tensor's shape to the shape that another gets


@final
@dataclass(frozen=True)
class Inferred:
    """A graph with a descriptor for every tensor of which something is known."""

    graph: Graph = field(default_factory=Graph)
    descriptors: Descriptors = field(default_factory=lambda: MappingProxyType({}))


def infer(graph: Graph, before: Inferred) -> Inferred:
    """The descriptors of all tensors of a graph in order; what did not change since `before` is kept.

    Raises `ConfigurationError`, naming the node and what it reads, where a node cannot stand where it stands.
    """
    known: dict[str, TensorDescriptor] = dict(graph.inputs)
    for name, value in graph.values().items():
        known[name] = TensorDescriptor(value.dtype, value.shape)
    changed = _changed(graph, before, known)
    kept = {node.name: node for node in before.graph.nodes}
    producers = graph.producers()
    alike: Alike = {}
    for node in graph.nodes:
        if kept.get(node.name) is node and changed.isdisjoint(node.inputs):
            known.update(
                {name: before.descriptors[name] for name in node.outputs if name in before.descriptors}
            )
            continue
        changed.update(name for name in node.outputs if name)
        known.update(_made(node, graph.constants, known, producers, alike))
    return Inferred(graph, MappingProxyType(known))


def context_of(node: Node, constants: Values, known: Descriptors) -> NodeContext:
    """The context of a node: the types, shapes and constants around it."""
    return NodeContext(
        node,
        MappingProxyType(
            {slot: constants[name] for slot, name in enumerate(node.inputs) if name in constants}
        ),
        tuple(known.get(name) if name else None for name in node.inputs),
        tuple(known.get(name) if name else None for name in node.outputs),
    )


def _changed(graph: Graph, before: Inferred, known: Descriptors) -> set[str]:
    """The tensors from outside that are not what they were."""
    return {
        name
        for name, descriptor in known.items()
        if before.descriptors.get(name) != descriptor
        or graph.constants.get(name) is not before.graph.constants.get(name)
    }


def _made(
    node: Node, constants: Values, known: Descriptors, producers: Mapping[str, Node], alike: Alike
) -> dict[str, TensorDescriptor]:
    """The descriptors of what a node makes; ONNX is asked once of all nodes that differ in names alone."""
    rule = rules.registered(node.domain, node.type)
    if rule is not None:
        return _by_rule(node, rule, context_of(node, constants, known))
    makers = [] if node.type in LIKE_THEIR_INPUT else _shape_makers(node, known, producers)
    key = _signature((*makers, node), constants, known)
    made = alike.get(key)
    if made is None:
        check_node(node, known)
        found = _by_onnx(node, makers, constants, known)
        made = alike[key] = tuple(found.get(name) for name in node.outputs)
    return {name: each for name, each in zip(node.outputs, made, strict=True) if name and each is not None}


def _signature(nodes: Iterable[Node], constants: Values, known: Descriptors) -> Hashable:
    """All that decides on what the last of these nodes makes: with numbers in the place of names."""
    places: dict[str, int] = {"": 0}
    described: list[Hashable] = []
    for node in nodes:
        described.append((node.domain, node.type))
        for name in node.inputs:
            if name not in places:
                places[name] = len(places)
                value = _value(name, node, constants)
                described.append((known.get(name), None if value is None else (value.dtype, value.tobytes())))
            described.append(places[name])
        described.append(None)  # between what is read and what is made
        described.extend(places.setdefault(name, len(places)) for name in node.outputs)
        described.extend(
            (name, (each.dtype, each.shape, each.tobytes()) if isinstance(each, np.ndarray) else repr(each))
            for name, each in node.attributes.items()
        )
    return tuple(described)


def _by_onnx(
    node: Node, shape_makers: list[Node], constants: Values, known: Descriptors
) -> dict[str, TensorDescriptor]:
    """The descriptors that ONNX's own inference finds for a node's outputs, and what follows from them."""
    if node.type in LIKE_THEIR_INPUT:
        return {node.outputs[0]: known[node.inputs[0]]} if node.inputs[0] in known else {}
    makers, more = simplified([node_to(each) for each in shape_makers], constants, known)
    spelt_out = {**FORGOTTEN.get(node.type, {}), **node.attributes}
    messages = [*makers, node_to(replace(node, attributes=spelt_out))]
    own = {each.name for each in more}
    made = {name for each in messages for name in each.output if name} | own
    read = {name for each in messages for name in each.input if name} - made
    values = {
        name: value
        for each in (*shape_makers, node)
        for name in each.inputs
        if name in read and (value := _value(name, each, constants)) is not None
    }
    model = helper.make_model(
        helper.make_graph(
            messages,
            "site",
            [value_info(name, known.get(name)) for name in sorted(read - values.keys())],
            [value_info(name) for name in node.outputs if name],
            [*more, *(numpy_helper.from_array(value, name) for name, value in sorted(values.items()))],
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    try:
        found = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:  # ONNX's own code raises whatever it comes upon
        raise ConfigurationError(misfit(node, reason(error), known)) from error
    _check_slope(node, known)
    symbols = {
        size
        for name in read
        for size in (known[name].shape or () if name in known else ())
        if isinstance(size, str)
    }
    outputs: dict[str, TensorDescriptor] = {}
    for each in found.graph.output:
        descriptor = descriptor_from(each.type, f"the tensor {each.name!r} that the node {node} makes")
        if descriptor is not None:
            outputs[each.name] = _without_foreign(descriptor, symbols)
    if node.type == "Reshape" and (better := counted(node, constants, known)) is not None:
        outputs[node.outputs[0]] = better
    if node.type == "Split" and (part := part_of(node, known)) is not None:
        known_parts = {name: each for name, each in outputs.items() if each.shape is not None}
        outputs = {name: part for name in node.outputs if name} | known_parts
    if node.type == "Resize" and node.outputs[0] in outputs:
        outputs[node.outputs[0]] = unscaled(node, constants, known, outputs[node.outputs[0]])
    return outputs


def _shape_makers(node: Node, known: Descriptors, producers: Mapping[str, Node]) -> list[Node]:
    """The nodes that compute, from shapes, the small integers that a node reads; in their order.

    ONNX carries such values through them, also where some of the sizes are open.
    """
    found: dict[str, Node] = {}
    waiting = [name for name in node.inputs if _is_small_integer(name, known)]
    while waiting and len(found) < MOST_NODES:
        maker = producers.get(waiting.pop())
        if maker is None or maker.domain or maker.type not in SHAPE_TYPES or maker.name in found:
            continue
        found[maker.name] = maker
        if maker.type not in ("Shape", "Size"):
            waiting.extend(each for each in maker.inputs if _is_small_integer(each, known))
    return _ordered(found, producers)


def _ordered(found: Mapping[str, Node], producers: Mapping[str, Node]) -> list[Node]:
    """The nodes, each after those it reads from; there are few of them, and they have no circle."""
    done: dict[str, Node] = {}

    def visit(node: Node) -> None:
        for name in node.inputs:
            maker = producers.get(name)
            if maker is not None and maker.name in found and maker.name not in done:
                visit(maker)
        done[node.name] = node

    for node in found.values():
        if node.name not in done:
            visit(node)
    return list(done.values())


def _is_small_integer(name: str, known: Descriptors) -> bool:
    descriptor = known.get(name)
    return (
        descriptor is not None
        and descriptor.dtype.kind in "iu"
        and descriptor.shape is not None
        and len(descriptor.shape) <= 1
    )


def _value(name: str, node: Node, constants: Values) -> Any:
    """The value of a constant that a node reads, where it can decide on a shape, and is small enough."""
    value = constants.get(name)
    if value is None or value.ndim > 1 or value.size > MOST_ELEMENTS:
        return None
    return None if node.type in DENSE and value.dtype.kind not in "iub" else value


def _check_slope(node: Node, known: Descriptors) -> None:
    """Raise `ConfigurationError` where the slopes of a PRelu do not fit, at which ONNX does not look.

    In its operator sets before 7, from which it does not convert them, they were one for each channel.
    """
    given, slope = (known.get(name) for name in node.inputs[:2]) if node.type == "PRelu" else (None, None)
    if given is None or slope is None or given.shape is None or slope.shape is None:
        return
    for size, other in zip(reversed(slope.shape), reversed(given.shape), strict=False):
        if isinstance(size, int) and isinstance(other, int) and size not in (1, other):
            raise ConfigurationError(
                misfit(node, "the slopes cannot be repeated to the input's shape", known)
            )


def _without_foreign(descriptor: TensorDescriptor, symbols: set[str]) -> TensorDescriptor:
    """Names that inference made up mean nothing outside of this node."""
    if descriptor.shape is None:
        return descriptor
    return TensorDescriptor(
        descriptor.dtype,
        [None if isinstance(size, str) and size not in symbols else size for size in descriptor.shape],
    )


def _by_rule(node: Node, rule: Callable[[NodeContext], Any], at: NodeContext) -> dict[str, TensorDescriptor]:
    known = {name: each for name, each in zip(node.inputs, at.inputs, strict=True) if each is not None}
    try:
        made = tuple(rule(at))
    except ConfigurationError as error:
        raise ConfigurationError(misfit(node, str(error), known)) from error
    if len(made) < len(node.outputs):
        raise ConfigurationError(
            misfit(node, f"it makes {len(made)} tensors, and the node has {len(node.outputs)} outputs", known)
        )
    return {name: each for name, each in zip(node.outputs, made, strict=False) if name and each is not None}


def misfit(node: Node, why: str, known: Descriptors) -> str:
    """The text of an error about a node: why it does not fit, and the tensors that it reads."""
    reads = "; ".join(f"{name!r}: {known.get(name, 'of unknown type')}" for name in node.inputs if name)
    return f"the node {node} does not fit what it reads: {why} (it reads {reads or 'nothing'})"


def reason(error: BaseException) -> str:
    """ONNX's own words, without the marks around them."""
    text = " ".join(str(error).split())
    text = re.sub(r"Inference error\(s\): ", "", text)
    text = re.sub(r"\(op_type:[^)]*\):? ?", "", text)
    text = re.sub(r"\[(ShapeInference|TypeInference)Error\] ", "", text)
    return text.strip(" .:") or type(error).__name__
