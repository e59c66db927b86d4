"""Claims about what every topology has in common, with Complete, Ring and a user's own as examples."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.topologies.graph import CommunicationGraph
from d5ray.distributed.topologies.mixing import ColumnStochastic, MetropolisHastings, Mixing, Uniform
from d5ray.distributed.topologies.topology import Complete, Ring, Topology
from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import canonical, digest

SIZES = range(1, 10)


class Path(Topology):
    """0 - 1 - 2 - …: a graph whose members have different numbers of neighbours."""

    def __init__(self, agents: int) -> None:
        self.agents = agents

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return tuple(other for other in (rank - 1, rank + 1) if 0 <= other < self.agents)


class OneWay(Path):
    """0 → 1 → 2 → …, and from the last to 0 and 1."""

    directed = True

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return (rank + 1,) if rank + 1 < self.agents else (0, 1)


class Blinking(Path):
    """A path in even rounds, nothing in odd ones."""

    period = 2

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return super().out_neighbors(rank) if round % 2 == 0 else ()


@dataclass
class Listed(Topology):
    """Exactly these neighbours."""

    targets: Any
    agents: int = 3
    directed: bool = False
    mixing: Mixing | None = None

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return self.targets[rank]  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Fixed(Mixing):
    """Exactly these weights."""

    rows: tuple[tuple[float, ...], ...]

    def matrix(self, topology: CommunicationGraph, round: int) -> Any:
        return self.rows


# -- weights -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agents", SIZES)
@pytest.mark.parametrize("kind", [Complete, Ring, Path])
def test_weights_are_symmetric_and_doubly_stochastic(kind: Callable[[int], Topology], agents: int) -> None:
    """Unless told otherwise: W = Wᵀ ≥ 0, rows sum to one, and W_ij > 0 on the closed neighbourhood alone."""
    topology = kind(agents)
    weights = topology.weights()
    assert weights.shape == (agents, agents) and weights.dtype == np.float64
    np.testing.assert_array_equal(weights, weights.T)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-15)
    for rank in range(agents):
        closed = {rank, *topology.neighbors(rank)}
        assert {int(other) for other in np.flatnonzero(weights[rank] > 1e-15)} == closed
        assert weights.min() >= 0


@pytest.mark.parametrize("agents", SIZES)
def test_a_complete_graph_averages_in_one_round(agents: int) -> None:
    """W = 11ᵀ/n."""
    np.testing.assert_allclose(Complete(agents).weights(), np.full((agents, agents), 1 / agents), atol=1e-15)


def test_metropolis_hastings_weights_of_a_path() -> None:
    """1 / (1 + max degree) on the edges: by hand for 0 - 1 - 2 - 3."""
    third = 1 / 3
    expected = [
        [2 / 3, third, 0, 0],
        [third, third, third, 0],
        [0, third, third, third],
        [0, 0, third, 2 / 3],
    ]
    np.testing.assert_allclose(Path(4).weights(), expected, atol=1e-15)


@pytest.mark.parametrize("kind", [Complete, Ring, Path])
def test_repeated_averaging_reaches_the_mean(kind: Callable[[int], Topology]) -> None:
    """A connected graph: W^t x → mean of x."""
    values = np.random.default_rng(2).standard_normal(6)
    mixed = np.linalg.matrix_power(kind(6).weights(), 2000) @ values
    np.testing.assert_allclose(mixed, values.mean(), atol=1e-10)


def test_a_given_mixing_replaces_the_default() -> None:
    """None is Metropolis-Hastings, or column-stochastic of directed graphs; else what was given."""
    assert Ring(4, mixing=MetropolisHastings()).weights().tolist() == Ring(4).weights().tolist()
    rows = ((0.5, 0.25, 0.25), (0.25, 0.5, 0.25), (0.25, 0.25, 0.5))
    assert Complete(3, mixing=Fixed(rows)).weights().tolist() == [list(row) for row in rows]
    np.testing.assert_allclose(
        OneWay(3).weights(), [[1 / 2, 0, 1 / 3], [1 / 2, 1 / 2, 1 / 3], [0, 1 / 2, 1 / 3]], atol=1e-15
    )


def test_weights_are_computed_once_and_nobody_can_write_them() -> None:
    """The same array comes back at each call and at each period, read-only."""
    for table in (Ring(4).weights, Ring(4).adjacency):
        assert table(0) is table(0) and table(0) is table(17)
        with pytest.raises(ValueError, match="read-only"):
            table()[0, 1] = 1
    blinking = Blinking(3)
    assert blinking.weights(4) is blinking.weights(0) and blinking.weights(3) is blinking.weights(1)


# -- neighbours ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agents", SIZES)
@pytest.mark.parametrize("kind", [Complete, Ring, Path])
def test_neighbours_are_mutual_ascending_and_never_oneself(
    kind: Callable[[int], Topology], agents: int
) -> None:
    """j is a neighbour of i exactly when i is one of j; undirected, all three kinds are the same."""
    topology = kind(agents)
    around = {rank: topology.neighbors(rank) for rank in range(agents)}
    for rank, others in around.items():
        assert list(others) == sorted(set(others) - {rank})
        assert all(rank in around[other] for other in others)
        assert others == topology.in_neighbors(rank) == topology.out_neighbors(rank)


def test_small_rings() -> None:
    """A ring of one is alone, one of two is a pair, one of three is complete, one of four is not."""
    assert [Ring(agents).neighbors(0) for agents in (1, 2, 3, 4)] == [(), (1,), (1, 2), (1, 3)]
    assert Ring(5).neighbors(4) == (0, 3)
    np.testing.assert_allclose(Ring(2).weights(), [[0.5, 0.5], [0.5, 0.5]])


def test_neighbours_of_a_directed_graph() -> None:
    """Of 0 → 1 → 2 → 3 → (0, 1), by hand; `neighbors` are those of both ways."""
    topology = OneWay(4)
    assert [topology.out_neighbors(rank) for rank in range(4)] == [(1,), (2,), (3,), (0, 1)]
    assert [topology.in_neighbors(rank) for rank in range(4)] == [(3,), (0, 3), (1,), (2,)]
    assert [topology.neighbors(rank) for rank in range(4)] == [(1, 3), (0, 2, 3), (1, 3), (0, 1, 2)]
    assert {type(rank) for rank in topology.in_neighbors(1)} == {int}


def test_rounds_of_a_time_varying_graph() -> None:
    """Edges, weights and graph are those of the round."""
    topology = Blinking(3)
    assert [topology.neighbors(1, round) for round in range(4)] == [(0, 2), (), (0, 2), ()]
    assert topology.in_neighbors(1, 1) == () and not topology.adjacency(1).any()
    np.testing.assert_array_equal(topology.weights(5), np.eye(3))
    np.testing.assert_array_equal(topology.weights(4), Path(3).weights())
    assert topology.graph(0).number_of_edges() == 4 and topology.graph(1).number_of_edges() == 0


def test_the_graph_of_networkx_has_the_weights() -> None:
    """An edge from sender to receiver has what the receiver gives; a node what it gives to its own."""
    topology = OneWay(4)
    graph, weights = topology.graph(), topology.weights()
    assert sorted(graph) == [0, 1, 2, 3]
    assert sorted(graph.edges) == [(0, 1), (1, 2), (2, 3), (3, 0), (3, 1)]
    assert all(data["weight"] == weights[receiver, sender] for sender, receiver, data in graph.edges.data())
    assert [graph.nodes[rank]["weight"] for rank in range(4)] == np.diag(weights).tolist()


# -- mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Complete, Ring])
@pytest.mark.parametrize("agents", [0, -1, 2.0, "4", True, None], ids=repr)
def test_a_wrong_number_of_agents_is_refused(kind: Callable[[Any], Topology], agents: Any) -> None:
    """The error names the value and what it must be."""
    with pytest.raises(ConfigurationError) as caught:
        kind(agents)
    assert str(caught.value) == f"agents is {agents!r}: it must be an integer of at least 1"
    with pytest.raises(ConfigurationError, match="agents is"):
        Path(agents).check()  # nobody looked when it was made


@pytest.mark.parametrize("mixing", [Uniform, "uniform", 0], ids=repr)
def test_a_wrong_mixing_is_refused(mixing: Any) -> None:
    """Where the topology is made."""
    with pytest.raises(ConfigurationError) as caught:
        Ring(4, mixing=mixing)
    expected = f"mixing is {mixing!r}: it must be a Mixing such as MetropolisHastings(), or None"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    "targets",
    [
        [(2, 1), (0,), (0,)],
        [(1, 1), (0,), ()],
        [(0, 1), (0,), ()],
        [(3,), (), ()],
        [(-1,), (), ()],
        [[1], [0], []],
        [None, (), ()],
        [("1",), (), ()],
    ],
    ids=["descending", "twice", "oneself", "too high", "negative", "lists", "None", "text"],
)  # fmt: skip
def test_neighbours_that_cannot_be_are_refused(targets: Any) -> None:
    """The error quotes them."""
    with pytest.raises(ConfigurationError) as caught:
        Listed(targets).check()
    assert (
        f".out_neighbors(0, 0) is {targets[0]!r}: it must be a tuple of other ranks between 0 and 2, "
        in str(caught.value)
    )


def test_one_way_edges_of_an_undirected_topology_are_refused() -> None:
    """The error names the edge, and both ways out."""
    targets = ((1, 2), (0,), ())
    with pytest.raises(
        ConfigurationError, match=r"0 sends to 2 and 2 not to 0: let both .* `directed = True`"
    ):
        Listed(targets).check()
    Listed(targets, directed=True).check()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (((1.0, 0.0), (0.0, 1.0)), r"weights of shape \(2, 2\), 4 of them finite: it must be \(3, 3\)"),
        (((np.nan, 0, 0), (0, 1, 0), (0, 0, 1)), "8 of them finite"),
        (((0.5, 0, 0.5), (0, 1, 0), (0.5, 0, 0.5)), r"W\[0, 2\] = 0.5, but 2 does not send to 0"),
        (((0.5, 0.4, 0), (0.2, 0.5, 0.3), (0, 0.5, 0.5)),
         r"rows sum to 0\.9\.\.1 and whose columns to 0\.7\.\.1\.4: all rows or all columns must"),
    ],
)  # fmt: skip
def test_weights_that_cannot_be_are_refused(rows: Any, expected: str) -> None:
    """On 0 - 1 - 2: a wrong shape, no numbers, weight where no edge is, sums that are not one."""
    topology = Listed(((1,), (0, 2), (1,)), mixing=Fixed(rows))
    with pytest.raises(ConfigurationError, match=expected):
        topology.check()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "neighbors",
            "Mine defines neighbors, which follows from out_neighbors: define out_neighbors(self, ",
        ),
        (
            "in_neighbors",
            "Mine defines in_neighbors, which follows from out_neighbors: define out_neighbors(",
        ),
        ("weights", "Mine defines weights, which come from the mixing: write a Mixing with matrix(self, "),
    ],
)
def test_a_class_that_defines_what_follows_is_told_what_to_define(name: str, expected: str) -> None:
    """As soon as the class is written."""
    with pytest.raises(ConfigurationError) as caught:
        type("Mine", (Topology,), {name: lambda self, rank: ()})
    assert str(caught.value).startswith(expected)


# -- data ----------------------------------------------------------------------------------------------------


def test_topologies_are_data() -> None:
    """Equal ones compare and hash equal, they print as they are written and cannot be changed."""
    assert Ring(4) == Ring(4) != Ring(5)
    topologies: list[Topology] = [Ring(4), Ring(4), Complete(4), Ring(4, Uniform())]
    assert len(set(topologies)) == 3
    assert repr(Ring(4)) == "Ring(agents=4)"
    assert repr(Ring(4, ColumnStochastic())) == "Ring(agents=4, mixing=ColumnStochastic())"
    assert eval(repr(Ring(4, ColumnStochastic()))) == Ring(4, ColumnStochastic())
    with pytest.raises(AttributeError):
        Ring(4).agents = 5  # type: ignore[misc]


def test_what_was_computed_is_no_part_of_the_data() -> None:
    """After use, description, hash, equality and copies are as before, and copies carry no tables."""
    fresh, used = Ring(200), Ring(200)
    used.weights()
    assert used == fresh and digest(used) == digest(fresh)
    assert canonical(used) == {
        "class": "d5ray.distributed.topology.Ring",
        "agents": 200,
        "mixing": None,
    }
    assert len(pickle.dumps(used)) == len(pickle.dumps(fresh)) < 300
    for twin in (pickle.loads(pickle.dumps(used)), copy.deepcopy(used), dataclasses.replace(used)):
        assert twin == used
        np.testing.assert_array_equal(twin.weights(), used.weights())
    own = Path(3)
    before = digest(own)
    own.weights()
    assert digest(own) == before and pickle.loads(pickle.dumps(own)).agents == 3
