"""Branches and loops of an ONNX model, decided before anything runs: If, Loop and Scan become plain nodes"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.inference import MOST_ELEMENTS, reason
from d5ray.networks.graph.protos import node_from
from d5ray.networks.graph.schemas import CONTROL_FLOW
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays import OPERATORS

MOST_NODES = 100_000  # that loops are written out to
FOLDED = frozenset(
    {"Add", "And", "Cast", "CastLike", "Ceil", "Concat", "Div", "Equal", "Floor", "Gather", "Greater",
     "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mul", "Neg", "Not", "Or", "Relu",
     "Reshape", "Slice", "Squeeze", "Sub", "Unsqueeze"}
)  # fmt: skip
ADVICE = "export the model with its branches and loops decided"

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]


def decided(model: onnx.ModelProto, what: str) -> onnx.ModelProto:
    """The model without control flow: branches taken, loops written out.

    Raises `ConfigurationError` where values decide that only a run knows.
    """
    while any(_is_control_flow(node) for node in model.graph.node):
        _Deciding(model, what).run()
        try:
            model = shape_inference.infer_shapes(model, data_prop=True)
        except Exception as error:  # ONNX's own code raises whatever it comes upon
            raise ConfigurationError(f"the loops of {what} cannot be written out: {reason(error)}") from error
    return model


def _is_control_flow(node: onnx.NodeProto) -> bool:
    return node.op_type in CONTROL_FLOW and node.domain in ("", "ai.onnx")


@final
class _Deciding:
    """One pass over the nodes: what is known of values, and the nodes that there are in the end."""

    def __init__(self, model: onnx.ModelProto, what: str) -> None:
        self.graph, self.what = model.graph, what
        self.nodes: list[onnx.NodeProto] = []
        self.values: dict[str, Array] = {
            each.name: numpy_helper.to_array(each) for each in model.graph.initializer
        }
        self.shapes: dict[str, tuple[int, ...]] = dict(_shapes(model.graph))
        self.copies = 0

    def run(self) -> None:
        """Write the graph's nodes anew."""
        for node in self.graph.node:
            if _is_control_flow(node):
                {"If": self._if, "Loop": self._loop, "Scan": self._scan}[node.op_type](node)
            else:
                self._take(node)
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        del self.graph.value_info[:]

    def _take(self, node: onnx.NodeProto) -> None:
        """Append a node, and compute it where all that it reads is known."""
        if len(self.nodes) >= MOST_NODES:
            raise ConfigurationError(
                f"the loops of {self.what} make more than {MOST_NODES:,} nodes when they are written out: "
                f"{ADVICE}"
            )
        self.nodes.append(node)
        if node.domain not in ("", "ai.onnx") or len(node.output) != 1:
            return
        if node.op_type == "Identity" and node.input[0] in self.shapes:
            self.shapes[node.output[0]] = self.shapes[node.input[0]]
        found = self._folded(node)
        if found is not None and found.size <= MOST_ELEMENTS:
            self.values[node.output[0]] = found

    def _folded(self, node: onnx.NodeProto) -> Array | None:
        if node.op_type == "Constant":
            return _constant(node)
        if node.op_type in ("Shape", "Size"):
            shape = self._shape(node.input[0])
            if shape is None:
                return None
            attributes = _attributes(node)
            if node.op_type == "Size":
                return np.asarray(np.prod(shape, dtype=np.int64))
            return np.asarray(shape[attributes.get("start", 0) : attributes.get("end")], np.int64)
        if node.op_type not in FOLDED or any(name and name not in self.values for name in node.input):
            return None
        own = node_from(node)
        inputs = [self.values[name] if name else None for name in own.inputs]
        return np.asarray(OPERATORS[own.type].forward(np, NodeContext(own), inputs)[0])

    def _shape(self, name: str) -> tuple[int, ...] | None:
        return self.values[name].shape if name in self.values else self.shapes.get(name)

    # Branches

    def _if(self, node: onnx.NodeProto) -> None:
        condition = self.values.get(node.input[0])
        if condition is None:
            raise self._unknown(node, f"its condition {node.input[0]!r}")
        branch = _attributes(node)["then_branch" if condition.reshape(-1)[0] else "else_branch"]
        self._bind(self._copy(branch, {}), node.output)

    # Loops

    def _loop(self, node: onnx.NodeProto) -> None:
        body = _attributes(node)["body"]
        trips, condition, *state = [*node.input, ""][: max(len(node.input), 2)]
        if trips and trips not in self.values:
            raise self._unknown(node, f"the number of its rounds {trips!r}")
        most = int(self.values[trips].reshape(-1)[0]) if trips else None
        count, rows, round_ = len(state), [], 0
        while most is None or round_ < most:
            if condition:
                if condition not in self.values:
                    raise self._unknown(node, f"its condition {condition!r}")
                if not self.values[condition].reshape(-1)[0]:
                    break
            given = [self._make(np.asarray(round_)), condition or self._make(np.asarray(True)), *state]
            condition, *made = self._copy(body, dict(zip(_inputs(body), given, strict=True)))
            state, round_ = made[:count], round_ + 1
            rows.append(made[count:])
        self._bind(state, node.output[:count])
        self._stack(node, rows, node.output[count:], [0] * (len(node.output) - count))

    def _scan(self, node: onnx.NodeProto) -> None:
        attributes = _attributes(node)
        body, scanned = attributes["body"], attributes["num_scan_inputs"]
        state, sources = list(node.input[:-scanned]), list(node.input[-scanned:])
        count = len(state)
        axes = attributes.get("scan_input_axes") or [0] * scanned
        backwards = attributes.get("scan_input_directions") or [0] * scanned
        shape = self._shape(sources[0])
        if shape is None:
            raise self._unknown(node, f"the length of {sources[0]!r}")
        length, rows = shape[axes[0]], []
        for step in range(length):
            given = []
            for source, axis, reverse in zip(sources, axes, backwards, strict=True):
                place = self._make(np.asarray(length - 1 - step if reverse else step))
                given.append(self._call("Gather", [source, place], axis=axis))
            made = self._copy(body, dict(zip(_inputs(body), [*state, *given], strict=True)))
            state = made[:count]
            rows.append(made[count:])
        self._bind(state, node.output[:count])
        outputs = node.output[count:]
        if any(attributes.get("scan_output_directions") or ()):
            flips = attributes["scan_output_directions"]
            rows = [
                [(rows[-1 - at] if flip else rows[at])[place] for place, flip in enumerate(flips)]
                for at in range(length)
            ]
        self._stack(node, rows, outputs, attributes.get("scan_output_axes") or [0] * len(outputs))

    def _stack(
        self, node: onnx.NodeProto, rows: Sequence[Sequence[str]], outputs: Sequence[str], axes: Sequence[int]
    ) -> None:
        """Stack the outputs of every round on a new axis."""
        if outputs and not rows:
            raise ConfigurationError(f"the node {node.name} ({node.op_type}) has no rounds: {ADVICE}")
        for place, (name, axis) in enumerate(zip(outputs, axes, strict=True)):
            if name:
                at = self._make(np.asarray([axis]))
                columns = [self._call("Unsqueeze", [row[place], at]) for row in rows]
                self._take(helper.make_node("Concat", columns, [name], axis=axis))

    # Writing

    def _copy(self, body: onnx.GraphProto, given: Mapping[str, str]) -> list[str]:
        """The body's nodes once more, under names of their own; gives the names of its outputs."""
        self.copies += 1
        names = dict(given)
        for own in (
            *(each.name for each in body.initializer),
            *(n for node in body.node for n in node.output),
        ):
            if own:
                names[own] = f"{own}/round{self.copies}"
        for tensor in body.initializer:
            self.values[names[tensor.name]] = numpy_helper.to_array(tensor)
            self.graph.initializer.add().CopyFrom(tensor)
            self.graph.initializer[-1].name = names[tensor.name]
        for node in body.node:
            copy = _renamed(node, names)
            copy.name = f"{node.name or node.op_type}/round{self.copies}"
            if _is_control_flow(copy):
                {"If": self._if, "Loop": self._loop, "Scan": self._scan}[copy.op_type](copy)
            else:
                self._take(copy)
        return [names.get(each.name, each.name) for each in body.output]

    def _bind(self, names: Sequence[str], outputs: Sequence[str]) -> None:
        for name, output in zip(names, outputs, strict=False):
            if output:
                self._take(helper.make_node("Identity", [name], [output]))

    def _call(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{inputs[0]}/{kind}{len(self.nodes)}"
        self._take(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _make(self, value: Array) -> str:
        """A constant."""
        name = f"constant/{len(self.nodes)}"
        self._take(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(value)))
        return name

    def _unknown(self, node: onnx.NodeProto, which: str) -> ConfigurationError:
        return ConfigurationError(
            f"the node {node.name} ({node.op_type}) of {self.what} cannot be decided before anything runs, "
            f"since {which} is not known then; networks have no control flow: {ADVICE}"
        )


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy that reads and writes under other names, also in what stands within it."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for repeated in (copy.input, copy.output):
        repeated[:] = [names.get(name, name) for name in repeated]
    for attribute in copy.attribute:
        for within in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            nodes = [_renamed(each, names) for each in within.node]
            del within.node[:]
            within.node.extend(nodes)
            for output in within.output:
                output.name = names.get(output.name, output.name)
    return copy


def _inputs(body: onnx.GraphProto) -> list[str]:
    return [each.name for each in body.input]


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def _constant(node: onnx.NodeProto) -> Array | None:
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        match attribute.name:
            case "value":
                return numpy_helper.to_array(value)
            case "value_int" | "value_ints":
                return np.asarray(value, np.int64)
            case "value_float" | "value_floats":
                return np.asarray(value, np.float32)
    return None


def _shapes(graph: onnx.GraphProto) -> Iterator[tuple[str, tuple[int, ...]]]:
    for each in (*graph.input, *graph.value_info, *graph.output):
        tensor = each.type.tensor_type
        if each.type.HasField("tensor_type") and tensor.HasField("shape"):
            sizes = [size.dim_value for size in tensor.shape.dim if size.HasField("dim_value")]
            if len(sizes) == len(tensor.shape.dim):
                yield each.name, tuple(sizes)
