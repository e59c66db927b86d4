"""A graph in double precision: every float32 becomes float64, and what nodes make of it follows"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.graph import Graph
from d5ray.networks.graph.tensors import read_only
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

SINGLE, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
OF_A_TYPE: Final = ("to", "dtype")  # attributes that are the number of one
STAYS: Final = {"Resize": (1, 2)}  # inputs that ONNX wants in float32: regions and scales


def in_double(graph: Graph) -> Graph:
    """The graph whose inputs, values and nodes are float64 where they were float32.

    Raises `ConfigurationError` for a node that holds a graph of its own, such as a loop.
    """
    stays = {
        node.inputs[at]
        for node in graph.nodes
        for at in (() if node.domain else STAYS.get(node.type, ()))
        if at < len(node.inputs)
    }

    def widened(values: Mapping[str, Any]) -> dict[str, Any]:
        return {name: each if name in stays else _value(each) for name, each in values.items()}

    return replace(
        graph,
        nodes=tuple(_node(node) for node in graph.nodes),
        inputs={name: _descriptor(each) for name, each in graph.inputs.items()},
        parameters=widened(graph.parameters),
        constants=widened(graph.constants),
        state_values=widened(graph.state_values),
    )


def _descriptor(descriptor: TensorDescriptor) -> TensorDescriptor:
    if descriptor.dtype != np.float32:
        return descriptor
    return TensorDescriptor("float64", descriptor.shape)


def _value(value: Any) -> Any:
    is_single = isinstance(value, np.ndarray) and value.dtype == np.float32
    return read_only(value.astype(np.float64)) if is_single else value


def _node(node: Node) -> Node:
    for name, value in node.attributes.items():
        if isinstance(value, onnx.GraphProto):
            raise ConfigurationError(
                f"the node {node} holds a graph ({name!r}), whose types stay as they are: compute the "
                "network in float32"
            )
    made = {
        name: DOUBLE if name in OF_A_TYPE and value == SINGLE else _value(value)
        for name, value in node.attributes.items()
    }
    return replace(node, attributes=made)
