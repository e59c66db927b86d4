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


def test_a_site_knows_constants_and_descriptors_but_no_parameter() -> None:
    network = line()
    network.add_constant("shape", np.array([-1]))
    flat = network.add_node(Node("Reshape", ("y", "shape"), ("flat",)))
    context = network.site(flat, evaluating=True)
    assert context.evaluating
    assert {slot: value.tolist() for slot, value in context.constants.items()} == {1: [-1]}
    assert context.inputs[0] == TensorDescriptor("float32", ("batch", 2))
    assert context.outputs == (TensorDescriptor("float32", (None,)),)
    assert network.site("product").constants == {}


@pytest.mark.parametrize(
    ("given", "target", "found"),
    [
        (("batch", 16, 5, 5), [-1, 400], ("batch", 400)),
        (("batch", 16, 5, 5), [0, -1], ("batch", 400)),
        (("batch", 6), [-1, 2, 3], ("batch", 2, 3)),
        (("batch", "length", 6), [0, 0, 2, -1], ("batch", "length", 2, 3)),
        (("batch", "length", 6), [-1, 6], (None, 6)),
        (("batch", 3, 1, 5), [0, 0, -1], ("batch", 3, 5)),
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


def test_a_resize_keeps_open_sizes_along_the_axes_that_it_leaves() -> None:
    network = Network()
    network.add_input("x", TensorDescriptor("float32", ("batch", 3, 8, "width")))
    network.add_constant("scales", np.array([1, 1, 2, 2], np.float32))
    network.add_node(Node("Resize", ("x", "", "scales"), ("y",), {"mode": "nearest"}))
    assert network.descriptors["y"].shape == ("batch", 3, 16, None)


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


def test_nodes_stand_in_an_order_in_which_they_can_be_computed() -> None:
    network = Network()
    network.add_input("x", TensorDescriptor("float32", (2,)))
    with network.changes():
        network.add_node(Node("Relu", ("b",), ("c",), name="third"))
        network.add_node(Node("Relu", ("a",), ("b",), name="second"))
        network.add_node(Node("Relu", ("x",), ("a",), name="first"))
    assert [node.name for node in network.nodes] == ["first", "second", "third"]


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


def test_a_running_mean_that_is_a_parameter_is_refused() -> None:
    network = Network()
    network.add_input("x", TensorDescriptor("float32", ("batch", 4)))
    for name in ("scale", "bias", "mean", "variance"):
        network.add_parameter(name, np.ones(4, np.float32))
    node = Node(
        "BatchNormalization",
        ("x", "scale", "bias", "mean", "variance"),
        ("y", "m", "v"),
        {"training_mode": 1},
    )
    with pytest.raises(ConfigurationError, match=r"replaces 'mean', which is a parameter.*add_state"):
        network.add_node(node)


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
        (Node("Concat", ("x", "x"), ("z",)), "lacks the attribute 'axis'"),
        (Node("Softmax", ("x",), ("z",), {"axis": 2}), "axis"),
        (Node("Softmax", ("x",), ("z",), {"axis": 1.5}), r"axis=1.5 of .* must be an integer"),
        (Node("Softmax", ("x",), ("z",), {"axis": [1]}), r"axis=.1,. of .* must be an integer"),
        (Node("Transpose", ("x",), ("z",), {"perm": 1}), r"perm=1 of .* must be a tuple of integers"),
        (Node("Gemm", ("x", "", "x"), ("z",)), "lacks its input 1, 'B'"),
        (Node("Relu", ("x",), ("y",)), "the tensor 'y' is made twice"),
        (Node("Relu", ("x",), ("z",), name="positive"), "two nodes are called 'positive'"),
        (Node("Bitwise", ("x",), ("z",), name="bad"), r"does not have: Bitwise \(at 'bad'\)"),
        (Node("IPow", ("x",), ("z",), domain="no.such"), "no.such.IPow"),
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


def test_nodes_that_wait_for_each_other_are_named_in_their_order() -> None:
    network = line()
    with (
        pytest.raises(ConfigurationError, match=r"circle.*a \(Add\) -> b \(Relu\) -> a \(Add\)"),
        network.changes(),
    ):
        network.add_node(Node("Add", ("x", "v"), ("u",), name="a"))
        network.add_node(Node("Relu", ("u",), ("v",), name="b"))
    assert [node.name for node in network.nodes] == ["product", "positive"]


def test_all_missing_operators_are_named_at_once() -> None:
    network = line()
    with (
        pytest.raises(ConfigurationError, match=r"2 operator types.*Foo \(at 'Foo' and 1 more\), my.Bar"),
        network.changes(),
    ):
        network.add_node(Node("Foo", ("x",), ("a",)))
        network.add_node(Node("Foo", ("x",), ("b",)))
        network.add_node(Node("Bar", ("x",), ("c",), domain="my"))


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


def test_what_the_attributes_give_stays_when_the_network_changes_and_cannot_be_written_to() -> None:
    network = line()
    inputs, outputs, parameters = network.inputs, network.outputs, network.parameters
    network.remove_output("y")
    network.add_input("more", TensorDescriptor("float32", ()))
    assert (list(inputs), list(outputs)) == (["x"], ["y"])
    with pytest.raises(ValueError, match="read-only"):
        parameters["w"][0, 0] = 5


def test_values_are_copied_when_they_come_in() -> None:
    value = np.ones((3, 2), np.float32)
    network = Network()
    network.add_parameter("w", value)
    value[:] = 7
    assert network.fetch_tensors(["w"])[0].max() == 1


def test_fetch_tensors_gives_values_and_says_what_is_computed() -> None:
    network = line()
    assert network.fetch_tensors(["w", "w"])[1].shape == (3, 2)
    with pytest.raises(ConfigurationError, match="'h', which is computed"):
        network.fetch_tensors(["h"])
    with pytest.raises(ConfigurationError, match="has no tensor 'ww'"):
        network.fetch_tensors(["ww"])


def test_what_is_no_model_of_a_framework_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'lenet' is no model of PyTorch .* or Keras"):
        Network.from_model("lenet")


def test_parameters_are_floating_point_numbers() -> None:
    with pytest.raises(ConfigurationError, match=r"'w' is of type int64.*make it a constant"):
        Network().add_parameter("w", np.arange(3))


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
