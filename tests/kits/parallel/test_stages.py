"""Claims about cutting networks into pieces: what goes where, and which cuts are refused"""

import pickle

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.stages.cut import Cut, Cutting, order
from d5ray.kits.parallel.stages.cutting import pieces
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor


def line(*more: Node, outputs: tuple[str, ...] = ("y",)) -> Network:
    """x -> first -> second -> third -> y; `turned` is made of a parameter, far from where it is read."""
    network = Network("line")
    network.add_input("x", TensorDescriptor("float32", ("batch", 4)))
    network.add_parameter("w", np.ones((6, 4), np.float32))
    network.add_parameter("v", np.ones((6, 3), np.float32))
    for node in (
        Node("Transpose", ("w",), ("turned",), {"perm": (1, 0)}, name="turn"),
        Node("Relu", ("x",), ("a",), name="first"),
        Node("MatMul", ("a", "turned"), ("b",), name="second"),
        Node("MatMul", ("b", "v"), ("y",), name="third"),
        *more,
    ):
        network.add_node(node)
    for name in outputs:
        network.add_output(name)
    return network


def test_a_piece_says_what_goes_in_and_out() -> None:
    """By hand, with the names of the nodes with which stages begin."""
    first, second, third = pieces(line(), Cut(("second", "third")))
    assert [piece.network.name for piece in (first, second, third)] == ["line[0]", "line[1]", "line[2]"]
    assert [node.name for node in first.network.nodes] == ["first"]
    assert (dict(first.incoming), dict(first.outgoing), first.results) == ({}, {"a": (1,)}, ())
    assert [node.name for node in second.network.nodes] == ["turn", "second"]
    assert (dict(second.incoming), dict(second.outgoing)) == ({"a": 0}, {"b": (2,)})
    assert list(second.network.parameters) == ["w"] and list(third.network.parameters) == ["v"]
    assert (dict(third.incoming), dict(third.outgoing), third.results) == ({"b": 1}, {}, ("y",))
    assert (first.outside, second.outside) == (("x",), ())
    assert third.network.inputs["b"] == TensorDescriptor("float32", ("batch", 6))
    assert not first.is_last and third.is_last
    # "a" is computed from no parameter: no gradient of it travels
    assert [piece.differentiated for piece in (first, second, third)] == [set(), {"b"}, {"b"}]
    assert repr(second) == (
        "Piece(1 of 0–2: 2 nodes from 'turn' to 'second'; 24 parameters; reads 'a' of 0; gives 'b' to 2)"
    )


def test_a_cut_by_stages_of_nodes() -> None:
    """What is not named follows from what it reads, or from who reads it."""
    for named in ({"second": 1}, {"first": 0, "third": 1, "second": 1}):
        first, second = pieces(line(), Cut(named))
        assert [node.name for node in first.network.nodes] == ["first"]
        assert [node.name for node in second.network.nodes] == ["turn", "second", "third"]
    apart, rest = pieces(line(), Cut({"turn": 0, "second": 1}))
    assert dict(apart.outgoing) == {"a": (1,), "turned": (1,)} and dict(rest.incoming) == {
        "a": 0,
        "turned": 0,
    }
    assert apart.differentiated == {"turned"}


def test_an_edge_may_skip_stages_and_have_several_readers() -> None:
    """It goes from its maker to each of them."""
    network = line(
        Node("Relu", ("y",), ("r",), name="fourth"),
        Node("MatMul", ("b", "v"), ("s",), name="fifth"),
        outputs=("r", "s"),
    )
    own = pieces(network, Cut(("third", "fourth", "fifth")))
    assert dict(own[0].outgoing) == {"b": (1, 3)} and dict(own[3].incoming) == {"b": 0}
    assert [dict(piece.tied) for piece in own] == [{}, {"v": (1, 3)}, {}, {"v": (1, 3)}]
    assert [piece.results for piece in own] == [(), (), ("r",), ("s",)]


def test_whole_numbers_between_stages_have_no_gradient() -> None:
    """And what comes from outside goes to every piece that reads it."""
    network = line(
        Node("Shape", ("a",), ("sizes",), name="measure"),
        Node("Expand", ("x", "sizes"), ("z",), name="spread"),
        outputs=("y", "z"),
    )
    first, second, third = pieces(network, Cut(("measure", "spread")))
    assert second.incoming == {"a": 0} and third.incoming == {"sizes": 1}
    assert (first.outside, second.outside, third.outside) == (("x",), (), ("x",))
    assert not second.differentiated and not third.differentiated
    assert (first.results, third.results) == (("y",), ("z",))


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        (Cut(("seconds",)), r"no node 'seconds': did you mean 'second'"),
        (Cut(("first",)), r"leaves stage 0 without operators: with first \(Relu\) the network begins"),
        (Cut(("turn", "second")), r"stage without operators: those that begin with 'turn' and 'second'"),
        (Cut(("third", "second")), r"leaves a cycle: 'second' comes before 'third'"),
        (Cut({"first": 1, "second": 0}), r"leaves a cycle: stage 1 would feed stage 0, since second \(Mat"),
        (Cut({"third": 2}), r"leaves stage 1 of 3 without operators"),
    ],
)
def test_cuts_that_cannot_be_are_refused(cut: Cutting, message: str) -> None:
    """A cycle, a stage without operators, an unknown node."""
    with pytest.raises(ConfigurationError, match=message):
        pieces(line(), cut)


def test_a_state_stays_in_one_stage() -> None:
    """One that two nodes read cannot be kept by two stages."""
    network = Network("normed")
    network.add_input("x", TensorDescriptor("float32", ("batch", 3, 2, 2)))
    for name in ("scale", "bias"):
        network.add_parameter(name, np.ones(3, np.float32))
    for name in ("mean", "variance"):
        network.add_state(name, np.ones(3, np.float32))
    reads = ("scale", "bias", "mean", "variance")
    network.add_node(
        Node("BatchNormalization", ("x", *reads), ("y", "m", "v"), {"training_mode": 1}, name="batch")
    )
    network.add_node(Node("BatchNormalization", ("y", *reads), ("z",), name="running"))
    network.add_output("z")
    with pytest.raises(ConfigurationError, match=r"the state 'mean' is read in the stages 0, 1 \(batch"):
        pieces(network, Cut(("running",)))
    assert len(pieces(network, Cut(()))) == 1


def test_the_order_keeps_what_it_can_and_the_network_stays_as_it_is() -> None:
    """Only what depends on no input moves to its reader."""
    network = line()
    before = network.fingerprint
    assert [node.name for node in network.nodes] == ["turn", "first", "second", "third"]
    assert [node.name for node in order(network)] == ["first", "turn", "second", "third"]
    own = pieces(network, Cut("turn"))
    assert network.fingerprint == before
    assert own[1].network.parameters["w"] is network.parameters["w"]  # shared until one is replaced
    own[1].network.feed_tensor("w", np.zeros((6, 4), np.float32))
    assert network.parameters["w"].all()


def test_pieces_travel_to_other_processes() -> None:
    """By pickle, as ONNX messages, with all that they say of themselves."""
    for piece in pieces(line(), Cut(("second", "third"))):
        again = pickle.loads(pickle.dumps(piece))
        assert repr(again) == repr(piece) and again.differentiated == piece.differentiated
        assert dict(again.network.descriptors) == dict(piece.network.descriptors)
        assert again.network.parameters.keys() == piece.network.parameters.keys()


def test_the_table_of_stages_adds_up() -> None:
    """Closed forms of a product: 2·B·I·O operations forwards, twice that backwards; and the bytes between."""
    rows = d5.pipelines.stage_table(
        d5.pipelines.pieces(line(), d5.pipelines.Cut(("second", "third"))), batch=5
    ).to_pylist()
    assert [row["operators"] for row in rows] == [1, 2, 1]
    assert [row["parameters"] for row in rows] == [0, 24, 18]
    assert [row["parameter_bytes"] for row in rows] == [0, 96, 72]
    assert rows[1]["flops"] == 3 * 2 * 5 * 4 * 6 and rows[2]["flops"] == 3 * 2 * 5 * 6 * 3
    assert [row["received_bytes"] for row in rows] == [0, 5 * 4 * 4, 5 * 6 * 4]
    assert [row["sent_bytes"] for row in rows] == [5 * 4 * 4, 5 * 6 * 4, 0]
    assert [row["received_from"] for row in rows] == [[], [0], [1]]
    assert [row["sent_to"] for row in rows] == [[1], [2], []]
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    assert (rows[1]["first"], rows[1]["last"]) == ("turn", "second")
