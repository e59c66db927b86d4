"""A Network as one looks at it: tensors, order, shapes, gradients; and what is refused"""

import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from d5ray.networks.network import Network
from d5ray.operators.nodes import inference
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor


def line() -> Network:
    """x -> MatMul w -> Relu -> y"""
    network = Network("line")
    network.add_input("x", TensorDescriptor("float32", ("batch", 3)))
    network.add_parameter("w", np.ones((3, 2), np.float32))
    network.add_node(Node("MatMul", ("x", "w"), ("h",), name="product"))
    network.add_node(Node("Relu", ("h",), ("y",), name="positive"))
    network.add_output("y")
    return network


def normalized() -> Network:
    """A BatchNormalization in training, between x and y."""
    network = Network("normalized")
    network.add_input("x", TensorDescriptor("float32", ("batch", 4, 8, 8)))
    for name in ("scale", "bias"):
        network.add_parameter(name, np.ones(4, np.float32))
    for name in ("mean", "variance"):
        network.add_state(name, np.ones(4, np.float32))
    node = Node(
        "BatchNormalization",
        ("x", "scale", "bias", "mean", "variance"),
        ("y", "mean_next", "variance_next"),
        {"training_mode": 1},
    )
    network.add_node(node)
    network.add_output("y")
    return network


def test_every_tensor_has_its_type_and_shape_with_open_sizes_by_name() -> None:
    network = line()
    assert dict(network.descriptors) == {
        "x": TensorDescriptor("float32", ("batch", 3)),
        "w": TensorDescriptor("float32", (3, 2)),
        "h": TensorDescriptor("float32", ("batch", 2)),
        "y": TensorDescriptor("float32", ("batch", 2)),
    }
    assert dict(network.outputs) == {"y": TensorDescriptor("float32", ("batch", 2))}


@pytest.mark.parametrize(
    ("given", "target", "found"),
    [
        (("batch", 16, 5, 5), [-1, 400], ("batch", 400)),
        (("batch", 16, 5, 5), [0, -1], ("batch", 400)),
        (("batch", "length", 6), [0, 0, 2, -1], ("batch", "length", 2, 3)),
        (("batch", "length", 6), [-1, 6], (None, 6)),
        (("batch", 4, 6), [0, -1, 3], ("batch", 8, 3)),
        (("batch", "length", 6), [0, -1, 3], ("batch", None, 3)),
        (("batch", 6), [-1, 4], (None, 4)),  # not batch: there are not as many
        ((4, 6), [-1, 8], (3, 8)),
    ],
)
def test_a_reshape_keeps_an_open_size_where_elements_are_as_many(
    given: tuple[int | str, ...], target: list[int], found: tuple[int | str | None, ...]
) -> None:
    network = Network()
    network.add_input("x", TensorDescriptor("float32", given))
    network.add_constant("target", np.array(target))
    network.add_node(Node("Reshape", ("x", "target"), ("y",)))
    assert network.descriptors["y"].shape == found


def test_shapes_that_are_computed_from_shapes_are_known() -> None:
    """As PyTorch's exporter writes x.reshape(len(x), -1): sizes through Shape, Gather, Concat."""
    network = Network()
    network.add_input("x", TensorDescriptor("float32", ("batch", 3, 4)))
    network.add_constant("zero", np.array(0))
    network.add_constant("one", np.array([1]))
    network.add_constant("twelve", np.array([12]))
    network.add_node(Node("Shape", ("x",), ("sizes",)))
    network.add_node(Node("Gather", ("sizes", "zero"), ("size",)))
    network.add_node(Node("Reshape", ("size", "one"), ("vector",)))  # a number as a vector of one
    network.add_node(Node("Concat", ("vector", "twelve"), ("target",), {"axis": 0}))
    network.add_node(Node("Reshape", ("x", "target"), ("y",)))
    assert network.descriptors["y"] == TensorDescriptor("float32", ("batch", 12))


def test_gradients_are_of_the_parameters_that_the_loss_depends_on() -> None:
    network = line()
    network.add_parameter("other", np.ones(2, np.float32))
    network.add_node(Node("Add", ("y", "other"), ("z",)))
    network.add_loss("MeanSquaredError", scores="y", labels="t")
    assert network.gradient() == [("w", "w_grad")]
    assert network.gradient("z") == [("w", "w_grad"), ("other", "other_grad")]


def test_state_is_what_a_batch_normalization_in_training_replaces() -> None:
    network = normalized()
    assert dict(network.state) == {"mean": "mean_next", "variance": "variance_next"}
    assert set(network.state_values) == {"mean", "variance"}
    assert [name for name, _ in network.gradient("y")] == ["scale", "bias"]


def test_a_state_that_two_nodes_replace_is_refused() -> None:
    network = normalized()
    node = Node(
        "BatchNormalization",
        ("y", "scale", "bias", "mean", "variance"),
        ("z", "m", "v"),
        {"training_mode": 1},
        "second",
    )
    with pytest.raises(ConfigurationError, match=r"second .* both replace the state 'mean'"):
        network.add_node(node)


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (Node("MatMul", ("w", "w"), ("z",), name="bad"), r"bad \(MatMul\).*'w': float32 \(3, 2\)"),
        (Node("Add", ("x", "three"), ("z",), name="bad"), r"bad \(Add\) reads 'x'.*'three', which is int64"),
        (Node("Relu", ("nothing",), ("z",)), "reads the tensor 'nothing' .*nobody makes"),
        (Node("Relu", ("x", "x"), ("z",)), r"has 2 inputs \('x', 'x'\), and must have 1"),
        (Node("Relu", ("x",), ("z",), {"alpha": 1.0}), "attribute 'alpha', which Relu has not"),
        (Node("Softmax", ("x",), ("z",), {"axis": 2}), "axis"),
        (Node("Softmax", ("x",), ("z",), {"axis": 1.5}), r"axis=1.5 of .* must be an integer"),
        (Node("Relu", ("x",), ("y",)), "the tensor 'y' is made twice"),
        (Node("Relu", ("x",), ("z",), name="positive"), "two nodes are called 'positive'"),
        (Node("Not", ("x",), ("z",)), r"cannot read 'x', which is float32 \(batch, 3\).*must be of bool"),
    ],
)
def test_a_node_that_does_not_fit_is_refused_by_name_and_nothing_changes(node: Node, said: str) -> None:
    network = line()
    network.add_constant("three", np.array([1, 2, 3]))
    before = network.nodes, dict(network.descriptors)
    with pytest.raises(ConfigurationError, match=said):
        network.add_node(node)
    assert (network.nodes, dict(network.descriptors)) == before


def test_an_operator_of_a_domain_of_its_own_has_the_shapes_of_its_rule() -> None:
    def rule(context: object) -> tuple[TensorDescriptor]:
        given = context.inputs[0]  # type: ignore[attr-defined]
        if len(given.shape) != 2:
            raise ConfigurationError("it takes matrices")
        return (TensorDescriptor(given.dtype, given.shape[::-1]),)

    inference.register("test.rules", "Turn", rule)
    try:
        network = line()
        network.add_node(Node("Turn", ("y",), ("turned",), domain="test.rules"))
        assert network.descriptors["turned"] == TensorDescriptor("float32", (2, "batch"))
        network.add_input("v", TensorDescriptor("float32", (2,)))
        with pytest.raises(
            ConfigurationError, match=r"test.rules.Turn.*it takes matrices.*'v': float32 \(2,\)"
        ):
            network.add_node(Node("Turn", ("v",), ("other",), domain="test.rules"))
    finally:
        inference.unregister("test.rules", "Turn")


def test_values_are_copied_and_what_the_attributes_give_stays() -> None:
    network = line()
    inputs, outputs, parameters = network.inputs, network.outputs, network.parameters
    network.remove_output("y")
    network.add_input("more", TensorDescriptor("float32", ()))
    assert (list(inputs), list(outputs)) == (["x"], ["y"])
    with pytest.raises(ValueError, match="read-only"):
        parameters["w"][0, 0] = 5
    value = np.ones((3, 2), np.float32)
    network.add_parameter("copied", value)
    value[:] = 7
    assert network.fetch_tensors(["copied"])[0].max() == 1
    with pytest.raises(ConfigurationError, match=r"'v' is of type int64.*make it a constant"):
        network.add_parameter("v", np.arange(3))


def test_fetch_tensors_gives_values_and_says_what_is_computed() -> None:
    network = line()
    assert network.fetch_tensors(["w", "w"])[1].shape == (3, 2)
    with pytest.raises(ConfigurationError, match="'h', which is computed"):
        network.fetch_tensors(["h"])
    with pytest.raises(ConfigurationError, match="has no tensor 'ww'"):
        network.fetch_tensors(["ww"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_networks_compute_in_other_floating_point_types_too(dtype: str) -> None:
    network = Network()
    network.add_input("x", TensorDescriptor(dtype, ("batch", 3)))
    network.add_parameter("w", np.ones((3, 2)).astype(TensorDescriptor(dtype).dtype))
    network.add_node(Node("MatMul", ("x", "w"), ("y",)))
    network.add_output("y")
    again = Network.from_onnx(network.to_onnx())
    assert again.outputs["y"] == TensorDescriptor(dtype, ("batch", 2))
    assert again.parameters["w"].dtype == TensorDescriptor(dtype).dtype
