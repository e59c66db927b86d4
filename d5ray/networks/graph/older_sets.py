"""Models of older operator sets in the newest one, with what ONNX's own conversion would lose"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper, version_converter

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.inference import reason
from d5ray.networks.graph.protos import OPSET

# What no later set can say: operator, the set from which on it means something else, when, and what to do.
LOST: Final[tuple[tuple[str, int, Callable[[Mapping[str, Any]], bool], str], ...]] = (
    ("Scan", 9, lambda _: True,
     "which means another thing from 9 on: export it again with opset_version=9 or more"),
    ("BatchNormalization", 9, lambda given: given.get("spatial", 1) == 0,
     "with spatial=0, one statistic for each place, which is gone from 9 on: write it out in others"),
    ("GroupNormalization", 21, lambda _: True,
     "whose scale and bias are those of groups: export it again with opset_version=21 or more"),
    ("Resize", 13, lambda given: given.get("coordinate_transformation_mode") == b"tf_half_pixel_for_nn",
     "with 'tf_half_pixel_for_nn', which is gone from 13 on: take 'half_pixel', and compare the results"),
)  # fmt: skip
RESIZED: Final = 11  # the set from which on a Resize says how places correspond
COERCED: Final = 13  # the set from which on a Hardmax looks at one axis alone


def check_meaning(model: onnx.ModelProto, version: int, what: str) -> None:
    """Raise `ConfigurationError` where an operator means what no newer set can say.

    A function of an older set than its model's is refused with an operator whose meaning has changed so.
    """
    for node in _nodes(model.graph.node):
        for kind, until, when, remedy in LOST:
            if node.op_type == kind and version < until and when(_attributes(node)):
                raise ConfigurationError(f"{what} has a {kind} of operator set {version}, {remedy}")
    for function in model.functions:
        own = next((each.version for each in function.opset_import if not each.domain), version)
        for node in _nodes(function.node):
            changed = {"Upsample": 10, "Resize": RESIZED, "Hardmax": COERCED}
            changed |= {kind: until for kind, until, *_ in LOST}
            if own != version and not node.domain and own < changed.get(node.op_type, 0):
                raise ConfigurationError(
                    f"the function {function.name!r} of {what} has a {node.op_type} of operator set {own}, "
                    f"and the model is of {version}: write both in one set"
                )


def converted(model: onnx.ModelProto, version: int, what: str) -> onnx.ModelProto:
    """The model in the newest operator set; raises `ConfigurationError` where that cannot be."""
    try:
        if version < COERCED:
            _coerce(model.graph)
        if version < RESIZED:
            model = version_converter.convert_version(model, RESIZED)
            _resize(model.graph, version, what)
        return model if version == OPSET else version_converter.convert_version(model, OPSET)
    except ConfigurationError:
        raise
    except Exception as error:  # ONNX's own code raises whatever it comes upon
        raise ConfigurationError(
            f"{what} cannot be converted from ONNX's operator set {version} to {OPSET}: {reason(error)}; "
            "export it again with a newer operator set"
        ) from error


def _coerce(graph: onnx.GraphProto) -> None:
    """Let each Hardmax look at all axes from its own on, as if they were one: it did so then."""
    kept = []
    for node in graph.node:
        if node.op_type == "Hardmax" and not node.domain:
            axis, (name,) = _attributes(node).get("axis", 1), node.output
            kept += [
                helper.make_node("Shape", node.input, [f"{name}.shape"]),
                helper.make_node("Flatten", node.input, [f"{name}.flat"], axis=axis),
                helper.make_node("Hardmax", [f"{name}.flat"], [f"{name}.largest"], node.name, axis=1),
                helper.make_node("Reshape", [f"{name}.largest", f"{name}.shape"], [name]),
            ]
        else:
            kept.append(node)
        for inner in _graphs(node):
            _coerce(inner)
    del graph.node[:]
    graph.node.extend(kept)


def _resize(graph: onnx.GraphProto, version: int, what: str) -> None:
    """Let each Resize, which an Upsample has become, too, take the places that it took in that set."""
    held = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for node in _nodes(graph.node):
        if node.op_type == "Constant" and (value := _attributes(node).get("value")) is not None:
            held[node.output[0]] = numpy_helper.to_array(value)
    for node in _nodes(graph.node):
        if node.op_type != "Resize" or node.domain:
            continue
        how = {"coordinate_transformation_mode": "asymmetric"}
        if _attributes(node).get("mode", b"nearest") == b"nearest":
            unknown = np.array([0.5, 2] if version == 10 else [1])  # an Upsample made nothing shorter
            scales = held.get(node.input[2], unknown)
            if scales.min() < 1 < scales.max():
                raise ConfigurationError(
                    f"{what} has a Resize of operator set {version} that takes the nearest places, and makes "
                    f"some axes longer and some shorter, or says at run time which: export the model again "
                    f"with opset_version={RESIZED} or more"
                )
            how["nearest_mode"] = "ceil" if scales.min() < 1 else "floor"
        kept = [each for each in node.attribute if each.name not in how]
        del node.attribute[:]
        node.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in how.items())])


def _nodes(nodes: Any) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of branches and loops within them."""
    for node in nodes:
        yield node
        for inner in _graphs(node):
            yield from _nodes(inner.node)


def _graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for each in node.attribute:
        yield from [each.g] if each.HasField("g") else each.graphs


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}
