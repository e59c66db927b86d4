"""Open sizes through reshapes: what ONNX's inference leaves unknown, and follows from counting elements"""

import math
from collections.abc import Mapping

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from d5ray.networks.graph.graph import Values
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

AXES = "the first axis"  # the name of a constant among the nodes that compute shapes


def counted(node: Node, constants: Values, known: Mapping[str, TensorDescriptor]) -> TensorDescriptor | None:
    """The output of a Reshape to (…, -1, …) of a tensor with open sizes, where counting elements tells.

    (batch, 16, 5, 5) to (-1, 400) is (batch, 400), and to (0, 16, -1) it is (batch, 16, 25): there are as
    many elements as before. None where that does not tell.
    """
    given = known.get(node.inputs[0])
    target = constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
    if given is None or given.shape is None or target is None or target.ndim != 1:
        return None
    sizes: list[int] = target.tolist()
    if not node.attributes.get("allowzero"):
        if any(size == 0 and axis >= len(given.shape) for axis, size in enumerate(sizes)):
            return None
        wanted = [given.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    else:
        wanted = list(sizes)
    before, after = list(given.shape), list(wanted)
    for size in given.shape:  # an open size that is copied stands on both sides
        if isinstance(size, str) and size in after:
            before.remove(size)
            after.remove(size)
    names = [size for size in before if not isinstance(size, int)]
    numbers = [size for size in after if isinstance(size, int) and size != -1]
    if after.count(-1) != 1 or len(names) > 1 or None in names or len(numbers) != len(after) - 1:
        return None
    if 0 in numbers or math.prod(size for size in before if isinstance(size, int)) % math.prod(numbers):
        return None
    factor = math.prod(size for size in before if isinstance(size, int)) // math.prod(numbers)
    if names and factor != 1:
        return None
    rest = names[0] if names else factor
    return TensorDescriptor(given.dtype, [rest if size == -1 else size for size in wanted])


def part_of(node: Node, known: Mapping[str, TensorDescriptor]) -> TensorDescriptor | None:
    """The output of a Split of whose sizes ONNX's inference knows nothing, not even the number of axes."""
    given = known.get(node.inputs[0])
    if given is None or given.shape is None:
        return None
    axis = int(node.attributes.get("axis", 0)) % len(given.shape)
    return TensorDescriptor(
        given.dtype, [None if at == axis else size for at, size in enumerate(given.shape)]
    )


def unscaled(
    node: Node, constants: Values, known: Mapping[str, TensorDescriptor], made: TensorDescriptor
) -> TensorDescriptor:
    """The output of a Resize, with the names of open sizes along the axes that it leaves as they are."""
    given = known.get(node.inputs[0])
    scales = constants.get(node.inputs[2]) if len(node.inputs) > 2 else None
    if given is None or given.shape is None or made.shape is None or scales is None:
        return made
    axes = node.attributes.get("axes") or range(len(given.shape))
    scale = {axis % len(given.shape): each for axis, each in zip(axes, scales.tolist(), strict=False)}
    sizes = [
        before if after is None and scale.get(axis, 1.0) == 1.0 else after
        for axis, (before, after) in enumerate(zip(given.shape, made.shape, strict=True))
    ]
    return TensorDescriptor(made.dtype, sizes)


def simplified(
    protos: list[NodeProto], constants: Values, known: Mapping[str, TensorDescriptor]
) -> tuple[list[NodeProto], list[TensorProto]]:
    """The nodes that compute a shape, in words through which ONNX carries values, and what these need.

    It does not carry any through a Reshape: of a number to (1,) that is an Unsqueeze, of a vector nothing.
    """
    nodes, used = [], False
    for proto in protos:
        if proto.op_type == "Reshape" and not proto.domain:
            given = known.get(proto.input[0])
            target = constants.get(proto.input[1])
            if given is not None and given.shape is not None and target is not None and target.shape == (1,):
                if given.shape == ():
                    nodes.append(helper.make_node("Unsqueeze", [proto.input[0], AXES], proto.output))
                    used = True
                    continue
                if len(given.shape) == 1 and int(target[0]) == -1:
                    nodes.append(helper.make_node("Identity", [proto.input[0]], proto.output))
                    continue
        nodes.append(proto)
    return nodes, [numpy_helper.from_array(np.zeros(1, np.int64), AXES)] if used else []
