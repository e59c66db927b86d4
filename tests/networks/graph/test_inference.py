"""What a Network knows of its tensors before anything runs, against ONNX's own cases of every operator"""

from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.ops.onnx_cases import CHANGED, Case, one_node

BY_VALUE = {"Compress", "NonZero", "NonMaxSuppression", "Unique", "MaxUnpool"}  # sizes follow from values
# Written as older operator sets have it, which is converted when a file is read.
OLD = {
    "test_dropout_random_old",
    "test_split_equal_parts_1d_opset13",
    "test_split_equal_parts_2d_opset13",
    "test_split_equal_parts_default_axis_opset13",
}


def network_of(case: Case) -> Network:
    network = Network(case.name)
    with network.changes():
        for name, value in zip(case.node.inputs, case.inputs, strict=False):
            if value is not None and name not in network.constants:
                network.add_constant(name, value)
        network.add_node(case.node)
    return network


def test_types_and_shapes_are_those_that_every_case_of_onnx_has() -> None:
    wrong = []
    for case in one_node():
        if case.name in OLD or case.version < CHANGED.get(case.node.type, 0):
            continue
        found = network_of(case).descriptors
        for name, value in zip(case.node.outputs, case.expected, strict=False):
            if value is None:
                continue
            expected = TensorDescriptor(value.dtype, value.shape)
            if case.node.type in BY_VALUE:
                assert found[name].dtype == expected.dtype
            elif found.get(name) != expected:
                wrong.append(f"{case.name}: {name} is {found.get(name)}, expected {expected}")
    assert wrong == []


def test_parts_whose_sizes_a_pass_decides_have_the_axes_of_the_whole() -> None:
    """ONNX's own inference forgets them; what cannot go on without, such as TensorFlow's graph, refuses."""
    network = Network("parts")
    network.add_input("x", TensorDescriptor("float32", ("batch", 6, 2)))
    network.add_input("sizes", TensorDescriptor("int64", (2,)))
    network.add_node(Node("Split", ("x", "sizes"), ("first", "last"), {"axis": -2}, name="split"))
    for name in ("first", "last"):
        assert network.descriptors[name] == TensorDescriptor("float32", ("batch", None, 2))
