"""A graph as an ONNX model, in memory or in a file."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path

import onnx
from onnx import helper, numpy_helper

from d5ray.networks.graph.graph import Graph
from d5ray.networks.graph.protos import IR_VERSION, OPSET, node_to, value_info
from d5ray.operators.tensor_descriptor import TensorDescriptor

KIND = "d5ray.kind"  # in an initializer's metadata: what it is, which ONNX itself cannot say


def write(
    graph: Graph, descriptors: Mapping[str, TensorDescriptor], path: str | PathLike[str] | None
) -> onnx.ModelProto:
    """The model, which is also written to `path`."""
    initializers = []
    for kind, values in (
        ("parameters", graph.parameters),
        ("constants", graph.constants),
        ("state_values", graph.state_values),
    ):
        for name, value in values.items():
            tensor = numpy_helper.from_array(value, name)
            helper.set_metadata_props(tensor, {KIND: kind})
            initializers.append(tensor)
    domains = sorted({node.domain for node in graph.nodes} - {""})
    model = helper.make_model(
        helper.make_graph(
            [node_to(node) for node in graph.nodes],
            graph.name,
            [value_info(name, each) for name, each in graph.inputs.items()],
            [value_info(name, descriptors.get(name)) for name in graph.outputs],
            initializers,
        ),
        producer_name="d5ray",
        ir_version=IR_VERSION,
        opset_imports=[helper.make_opsetid("", OPSET), *(helper.make_opsetid(each, 1) for each in domains)],
    )
    if path is not None:
        Path(path).write_bytes(model.SerializeToString())
    return model
