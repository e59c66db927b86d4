"""Changes of a Network: each is valid as a whole or leaves everything as it was"""

import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor


def branches() -> Network:
    """x -> product -> left and right -> sum"""
    network = Network("branches")
    network.add_input("x", TensorDescriptor("float32", ("batch", 3)))
    network.add_parameter("w", np.eye(3, dtype=np.float32))
    network.add_node(Node("MatMul", ("x", "w"), ("h",), name="product"))
    network.add_node(Node("Relu", ("h",), ("a",), name="left"))
    network.add_node(Node("Tanh", ("h",), ("b",), name="right"))
    network.add_node(Node("Sum", ("a", "b"), ("y",), name="sum"))
    network.add_output("y")
    return network


def structure(network: Network) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(node.type, node.inputs, node.outputs) for node in network.nodes]


def test_a_node_whose_outputs_are_read_cannot_be_removed_and_the_reader_is_named() -> None:
    network = branches()
    with pytest.raises(ConfigurationError, match=r"left .Relu. .*'a' .*sum .Sum."):
        network.remove_node("left")
    with pytest.raises(ConfigurationError, match=r"sum .Sum. .*'y' is an output of the network"):
        network.remove_node("sum")
    assert len(network.nodes) == 4


def test_what_only_a_removed_node_read_goes_with_it() -> None:
    network = branches()
    network.add_parameter("v", np.ones(3, np.float32))
    network.add_node(Node("Mul", ("y", "v"), ("z",), name="scaled"))
    network.add_node(Node("Add", ("y", "w"), ("u",), name="shifted"))
    network.remove_node("scaled")
    network.remove_node("shifted")
    assert list(network.parameters) == ["w"]  # which the product still reads


def test_a_tensor_that_nobody_has_read_yet_stays() -> None:
    network = branches()
    network.add_parameter("later", np.ones(3, np.float32))
    network.bypass("left")
    assert set(network.parameters) == {"w", "later"}


def test_an_edge_can_be_laid_and_taken_up() -> None:
    network = branches()
    network.add_edge("h", "sum", 2)  # a Sum takes any number
    assert network.node("sum").inputs == ("a", "b", "h")
    network.remove_edge("b", "sum")
    assert network.node("sum").inputs == ("a", "h")
    network.add_edge("b", "sum", 0)
    assert network.node("sum").inputs == ("b", "h")
    assert network.readers("h") == (network.node("left"), network.node("right"), network.node("sum"))


def test_an_optional_input_becomes_empty_and_a_needed_one_cannot() -> None:
    network = branches()
    network.add_parameter("bias", np.ones(3, np.float32))
    network.add_node(Node("Gemm", ("y", "w", "bias"), ("z",), name="dense"))
    network.remove_edge("bias", "dense")
    assert network.node("dense").inputs == ("y", "w")
    assert "bias" not in network.parameters
    with pytest.raises(ConfigurationError, match=r"dense \(Gemm\)"):
        network.remove_edge("w", "dense")
    with pytest.raises(ConfigurationError, match=r"does not read 'a': it reads 'y', 'w'"):
        network.remove_edge("a", "dense")


def test_an_input_between_others_can_be_left_out() -> None:
    network = Network()
    network.add_input("x", TensorDescriptor("float32", (4,)))
    network.add_constant("low", np.float32(0))
    network.add_constant("high", np.float32(1))
    network.add_node(Node("Clip", ("x", "low", "high"), ("y",), name="clip"))
    network.remove_edge("low", "clip")
    assert network.node("clip").inputs == ("x", "", "high")


def test_an_edge_that_is_meant_must_be_said_where_there_are_two() -> None:
    network = branches()
    network.add_node(Node("Sum", ("y", "y", "y"), ("z",), name="thrice"))
    with pytest.raises(ConfigurationError, match=r"reads 'y' at its inputs \[0, 1, 2\]"):
        network.remove_edge("y", "thrice")
    network.remove_edge("y", "thrice", 1)
    assert network.node("thrice").inputs == ("y", "y")


def test_an_edge_that_does_not_fit_leaves_everything_as_it_was() -> None:
    network = branches()
    network.add_constant("index", np.array([1, 2]))
    before = structure(network)
    for tensor, said in [("index", "int64"), ("y", "circle"), ("none", "nobody makes")]:
        with pytest.raises(ConfigurationError, match=said):
            network.add_edge(tensor, "left", 0)
    assert structure(network) == before


def test_a_changed_size_runs_through_everything_behind_it() -> None:
    network = branches()
    with network.changes():
        network.add_parameter("wide", np.ones((3, 5), np.float32))
        network.add_edge("wide", "product", 1)
    assert network.outputs["y"] == TensorDescriptor("float32", ("batch", 5))
    assert list(network.parameters) == ["wide"]


def test_a_changed_size_that_fits_nowhere_behind_names_the_node_there() -> None:
    network = branches()
    network.add_constant("three", np.ones(3, np.float32))
    network.add_node(Node("Add", ("y", "three"), ("z",), name="behind"))
    network.add_parameter("wide", np.ones((3, 5), np.float32))
    with pytest.raises(ConfigurationError, match=r"behind \(Add\).*float32 \(batch, 5\).*float32 \(3,\)"):
        network.add_edge("wide", "product", 1)
    assert network.outputs["y"] == TensorDescriptor("float32", ("batch", 3))


def test_a_constant_that_changes_changes_the_shapes_that_follow_from_it() -> None:
    network = branches()
    network.add_constant("target", np.array([3, -1]))
    network.add_node(Node("Reshape", ("y", "target"), ("z",)))
    network.feed_tensor("target", np.array([1, 1, -1]))
    assert network.descriptors["z"] == TensorDescriptor("float32", (1, 1, None))


def test_one_node_is_replaced_by_several_and_they_take_names_after_it() -> None:
    network = branches()
    new = network.replace("left", Node("Neg", ("h",), ("n",)), Node("Exp", ("n",), ("a",)))
    assert [str(node) for node in new] == ["left_Neg (Neg)", "left_Exp (Exp)"]
    assert structure(network)[1:3] == [("Neg", ("h",), ("n",)), ("Exp", ("n",), ("a",))]
    with pytest.raises(ConfigurationError, match=r"sum .Sum. reads the tensor 'a'.*nobody makes"):
        network.replace("left_Exp", Node("Exp", ("n",), ("other",)))


def test_one_node_takes_the_place_and_the_name_of_one() -> None:
    network = branches()
    (new,) = network.replace(network.node("left"), Node("Sigmoid", ("h",), ("a",)))
    assert str(new) == "left (Sigmoid)"
    assert network.producer("a") == new


def test_who_read_a_bypassed_node_reads_what_it_read() -> None:
    network = branches()
    network.bypass("left")
    assert network.node("sum").inputs == ("h", "b")
    network.bypass("sum")  # y, which it made, must go on being the output: another node makes it
    assert list(network.outputs) == ["y"]
    assert network.producer("y") is network.node("product")


def test_a_bypass_that_would_rename_an_input_is_refused() -> None:
    network = Network()
    network.add_input("x", TensorDescriptor("float32", (2,)))
    network.add_node(Node("Relu", ("x",), ("y",)))
    network.add_output("y")
    with pytest.raises(ConfigurationError, match="'y', an output of the network, of 'x'"):
        network.bypass("Relu")


def test_a_tensor_has_its_new_name_wherever_it_stands() -> None:
    network = branches()
    network.add_output("h")
    network.rename("h", "hidden")
    network.rename("w", "weight")
    network.rename("x", "images")
    assert structure(network)[0] == ("MatMul", ("images", "weight"), ("hidden",))
    assert (list(network.inputs), list(network.outputs)) == (["images"], ["y", "hidden"])
    with pytest.raises(ConfigurationError, match="a tensor 'y' already"):
        network.rename("hidden", "y")
    network.rename_node("left", "first")
    assert network.node("first").type == "Relu"
    with pytest.raises(ConfigurationError, match="two nodes are called 'right'"):
        network.rename_node("first", "right")


def test_several_changes_are_one_and_undone_as_one() -> None:
    network = branches()
    before = structure(network)
    with network.changes():
        network.remove_node("left")  # the sum still reads what it made
        network.add_node(Node("Sigmoid", ("h",), ("a",), name="new"))
    assert network.producer("a") is network.node("new")
    with pytest.raises(KeyError), network.changes():
        network.remove_node("new")
        raise KeyError
    with pytest.raises(ConfigurationError, match="nobody makes"), network.changes():
        network.remove_node("new")
    assert sorted(structure(network)) == sorted([*before[:1], ("Sigmoid", ("h",), ("a",)), *before[2:]])


def test_descriptors_can_be_asked_for_between_changes_and_all_is_still_undone() -> None:
    network = branches()
    before = structure(network)
    with pytest.raises(KeyError), network.changes():
        network.add_node(Node("Transpose", ("y",), ("z",)))
        assert network.descriptors["z"].shape == (3, "batch")
        raise KeyError
    assert structure(network) == before
    assert "z" not in network.descriptors


def test_a_value_is_fed_to_what_holds_one_and_must_be_of_its_type() -> None:
    network = branches()
    network.feed_tensor("w", np.zeros((3, 3), np.float32))
    assert network.fetch_tensors(["w"])[0].max() == 0
    for name, value, said in [
        ("w", np.zeros((3, 3)), "float64 .3, 3., and must be of type float32"),
        ("w", np.zeros((2, 2), np.float32), r"product .MatMul."),
        ("x", np.zeros((3, 3), np.float32), "an input: give its value to inference"),
        ("h", np.zeros((3, 3), np.float32), "computed by a node"),
        ("v", np.zeros((3, 3), np.float32), "has no tensor 'v'"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            network.feed_tensor(name, value)
    assert network.parameters["w"].max() == 0


def test_a_copy_is_changed_alone() -> None:
    network = branches()
    other = network.copy()
    other.bypass("left")
    other.feed_tensor("w", np.zeros((3, 3), np.float32))
    assert len(network.nodes) == 4
    assert network.parameters["w"].max() == 1


@pytest.mark.parametrize(
    ("scores", "kind", "axis", "labels", "types"),
    [
        (("batch", 10), "SoftmaxCrossEntropyLoss", 1, TensorDescriptor("int64", ("batch",)), []),
        (("batch", 10, 7), "SoftmaxCrossEntropyLoss", 1, TensorDescriptor("int64", ("batch", 7)), []),
        (
            ("batch", 7, 10),
            "NegativeLogLikelihoodLoss",
            -1,
            TensorDescriptor("int64", ("batch", 7)),
            ["Transpose"],
        ),
        (("batch", 7, 10), "MeanSquaredError", 1, TensorDescriptor("float32", ("batch", 7, 10)), []),
    ],
)
def test_a_loss_has_labels_of_the_shape_that_belongs_to_the_scores(
    scores: tuple[int | str, ...], kind: str, axis: int, labels: TensorDescriptor, types: list[str]
) -> None:
    network = Network()
    network.add_input("x", TensorDescriptor("float32", scores))
    network.add_node(Node("Tanh", ("x",), ("scores",)))
    network.add_output("scores")
    assert network.add_loss(kind, classes_axis=axis) == "loss"
    assert network.inputs["labels"] == labels
    assert network.outputs["loss"] == TensorDescriptor("float32", ())
    assert [node.type for node in network.nodes] == ["Tanh", *types, kind]


def test_a_loss_that_does_not_fit_is_refused() -> None:
    network = branches()
    for said, kind, options in [
        ("no loss 'Softmax'", "Softmax", {}),
        ("has no tensor 'z'", "MeanSquaredError", {"scores": "z"}),
        ("a tensor 'y' already", "MeanSquaredError", {"labels": "y"}),
        ("classes_axis=2", "SoftmaxCrossEntropyLoss", {"classes_axis": 2}),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            network.add_loss(kind, **options)  # type: ignore[arg-type]
    network.add_output("h")
    with pytest.raises(ConfigurationError, match="has 2 outputs, 'y', 'h': say which"):
        network.add_loss()


def test_inputs_and_outputs_come_and_go() -> None:
    network = branches()
    network.add_input("more", TensorDescriptor("int64", ()))
    network.remove_input("more")
    assert list(network.inputs) == ["x"]
    with pytest.raises(ConfigurationError, match=r"product .MatMul. reads the tensor 'x'.*nobody makes"):
        network.remove_input("x")
    with pytest.raises(ConfigurationError, match="no output 'h'"):
        network.remove_output("h")
    with pytest.raises(ConfigurationError, match="output 'nothing' is made by no node"):
        network.add_output("nothing")
