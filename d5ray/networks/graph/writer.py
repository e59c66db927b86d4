"""A graph as an ONNX model, in memory or in a file."""

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

import onnx
from onnx import helper, numpy_helper

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.graph import Graph
from d5ray.networks.graph.protos import OPSET, node_to, value_info
from d5ray.networks.graph.schemas import mean_the_same
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

KIND = "d5ray.kind"  # in an initializer's metadata: what it is, which ONNX itself cannot say
OLDEST_OPSET = 21  # that is written
OLDEST_IR_VERSION = 10  # that has metadata
LARGEST = 2**31 - 1  # bytes of a message, which is protobuf's own limit


def write(
    graph: Graph, known: Mapping[str, TensorDescriptor], path: str | PathLike[str] | None
) -> onnx.ModelProto:
    """The model, which is also written to `path`."""
    held = {
        "parameters": graph.parameters,
        "constants": graph.constants,
        "state_values": graph.state_values,
    }
    size = sum(value.nbytes for values in held.values() for value in values.values())
    if size > LARGEST:
        raise ConfigurationError(
            f"the network {graph.name!r} holds {size:,} bytes of values, and one ONNX model at most "
            f"{LARGEST:,}"
        )
    initializers = []
    for kind, values in held.items():
        for name, value in values.items():
            tensor = numpy_helper.from_array(value, name)
            helper.set_metadata_props(tensor, {KIND: kind})
            initializers.append(tensor)
    opset = _opset(graph.nodes, known)
    domains = sorted({node.domain for node in graph.nodes} - {""})
    model = helper.make_model(
        helper.make_graph(
            [node_to(node) for node in graph.nodes],
            graph.name,
            [value_info(name, each) for name, each in graph.inputs.items()],
            [value_info(name, known.get(name)) for name in graph.outputs],
            initializers,
        ),
        producer_name="d5ray",
        ir_version=max(OLDEST_IR_VERSION, helper.OP_SET_ID_VERSION_MAP["ai.onnx", opset]),
        opset_imports=[helper.make_opsetid("", opset), *(helper.make_opsetid(each, 1) for each in domains)],
    )
    if path is not None:
        try:
            Path(path).write_bytes(model.SerializeToString())
        except OSError as error:
            raise ConfigurationError(
                f"the network cannot be written to {str(path)!r}: {error.strerror}"
            ) from error
    return model


def _opset(nodes: Iterable[Node], known: Mapping[str, TensorDescriptor]) -> int:
    """The oldest operator set in which all nodes mean what they mean, which most programs can read."""
    found = OLDEST_OPSET
    for node in nodes:
        while found < OPSET and not mean_the_same(node, found, known):
            found += 1
    return found
