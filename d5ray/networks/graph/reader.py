"""A graph from an ONNX model: a file, its bytes, or the message itself."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np
import onnx
from onnx import inliner, numpy_helper, version_converter

from d5ray.networks.graph.graph import Graph
from d5ray.networks.graph.kinds import sorted_out
from d5ray.networks.graph.protos import OPSET, descriptor_from, node_from
from d5ray.networks.graph.writer import KIND


def read(source: str | PathLike[str] | bytes | onnx.ModelProto) -> Graph:
    """The graph of a model."""
    if isinstance(source, onnx.ModelProto):
        model = source
    elif isinstance(source, bytes):
        model = onnx.load_model_from_string(source)
    else:
        model = onnx.load(source)
    if model.functions:
        model = inliner.inline_local_functions(model)
    version = max(
        (each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=OPSET
    )
    if version != OPSET:
        model = version_converter.convert_version(model, OPSET)
    values, marked, nodes = {}, {}, []
    for tensor in model.graph.initializer:
        values[tensor.name] = numpy_helper.to_array(tensor)
        for each in tensor.metadata_props:
            if each.key == KIND:
                marked[tensor.name] = each.value
    names: set[str] = set()
    for proto in model.graph.node:
        node = node_from(proto)
        if node.type == "Constant" and not node.domain:
            values[node.outputs[0]] = _constant(node.attributes)
            marked[node.outputs[0]] = "constants"
            continue
        name, number = node.name or node.type, 1
        while name in names:
            number += 1
            name = f"{node.name or node.type}_{number}"
        names.add(name)
        nodes.append(node_from(proto, name))
    inputs = {
        each.name: descriptor_from(each.type, f"the input {each.name!r}")
        for each in model.graph.input
        if each.name not in values
    }
    return Graph(
        model.graph.name,
        tuple(nodes),
        {name: each for name, each in inputs.items() if each is not None},
        tuple(each.name for each in model.graph.output),
        **sorted_out(values, nodes, marked),
    )


def _constant(attributes: Mapping[str, Any]) -> Any:
    kind, value = next(iter(attributes.items()))
    if kind == "value":
        return value
    return np.asarray(value, np.float32 if "float" in kind else np.int64)
