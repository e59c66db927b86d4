"""Claims about what every topology has in common, with Ring and a user's own as examples."""

import copy
import dataclasses
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.topologies.graph import CommunicationGraph
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import canonical, digest
from d5ray.topologies import ColumnStochastic, Complete, MetropolisHastings, Mixing, Ring, Uniform


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


def test_a_given_mixing_replaces_the_default() -> None:
    """None is Metropolis-Hastings, 1 / (1 + max degree), or column-stochastic of directed graphs."""
    third = 1 / 3
    path = [[2 / 3, third, 0, 0], [third, third, third, 0], [0, third, third, third], [0, 0, third, 2 / 3]]
    np.testing.assert_allclose(Path(4).weights(), path, atol=1e-15)
    one_way = [[1 / 2, 0, third], [1 / 2, 1 / 2, third], [0, 1 / 2, third]]
    np.testing.assert_allclose(OneWay(3).weights(), one_way, atol=1e-15)
    assert Ring(4, mixing=MetropolisHastings()).weights().tolist() == Ring(4).weights().tolist()
    rows = ((0.5, 0.25, 0.25), (0.25, 0.5, 0.25), (0.25, 0.25, 0.5))
    assert Complete(3, mixing=Fixed(rows)).weights().tolist() == [list(row) for row in rows]


def test_weights_are_computed_once_and_nobody_can_write_them() -> None:
    """The same array comes back at each call and at each period, read-only."""
    for table in (Ring(4).weights, Ring(4).adjacency):
        assert table(0) is table(0) and table(0) is table(17)
        with pytest.raises(ValueError, match="read-only"):
            table()[0, 1] = 1
    blinking = Blinking(3)
    assert blinking.weights(4) is blinking.weights(0) and blinking.weights(3) is blinking.weights(1)


def test_neighbours_of_a_directed_graph() -> None:
    """Of 0 → 1 → 2 → 3 → (0, 1), by hand; `neighbors` are those of both ways.

    In the graph of networkx an edge from sender to receiver has the weight that the receiver gives, a node
    that which it gives to its own.
    """
    topology = OneWay(4)
    assert [topology.out_neighbors(rank) for rank in range(4)] == [(1,), (2,), (3,), (0, 1)]
    assert [topology.in_neighbors(rank) for rank in range(4)] == [(3,), (0, 3), (1,), (2,)]
    assert [topology.neighbors(rank) for rank in range(4)] == [(1, 3), (0, 2, 3), (1, 3), (0, 1, 2)]
    assert {type(rank) for rank in topology.in_neighbors(1)} == {int}
    graph, weights = topology.graph(), topology.weights()
    assert sorted(graph.edges) == [(0, 1), (1, 2), (2, 3), (3, 0), (3, 1)]
    assert all(data["weight"] == weights[receiver, sender] for sender, receiver, data in graph.edges.data())
    assert [graph.nodes[rank]["weight"] for rank in range(4)] == np.diag(weights).tolist()


def test_rounds_of_a_time_varying_graph() -> None:
    """Edges, weights and graph are those of the round."""
    topology = Blinking(3)
    assert [topology.neighbors(1, round) for round in range(4)] == [(0, 2), (), (0, 2), ()]
    assert topology.in_neighbors(1, 1) == () and not topology.adjacency(1).any()
    np.testing.assert_array_equal(topology.weights(5), np.eye(3))
    np.testing.assert_array_equal(topology.weights(4), Path(3).weights())
    assert topology.graph(0).number_of_edges() == 4 and topology.graph(1).number_of_edges() == 0


TARGETS = {
    "descending": [(2, 1), (0,), (0,)], "twice": [(1, 1), (0,), ()], "oneself": [(0, 1), (0,), ()],
    "too high": [(3,), (), ()], "negative": [(-1,), (), ()], "lists": [[1], [0], []],
    "None": [None, (), ()], "text": [("1",), (), ()],
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_neighbours_that_cannot_be_are_refused(name: str) -> None:
    """The error quotes them."""
    with pytest.raises(ConfigurationError) as caught:
        Listed(TARGETS[name]).check()
    assert f".out_neighbors(0, 0) is {TARGETS[name][0]!r}" in str(caught.value)


PATH, ONE_SIDED = ((1,), (0, 2), (1,)), ((1, 2), (0,), ())


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        *((Path(agents), "agents is") for agents in (0, "4", True, None)),  # type: ignore[arg-type]
        (Listed(ONE_SIDED), "0 sends to 2 and 2 not to 0: let both .* `directed = True`"),
        (Listed(PATH, mixing=Fixed(((1.0, 0.0), (0.0, 1.0)))), r"shape \(2, 2\).*must be \(3, 3\)"),
        (Listed(PATH, mixing=Fixed(((np.nan, 0, 0), (0, 1, 0), (0, 0, 1)))), "8 of them finite"),
        (Listed(PATH, mixing=Fixed(((0.5, 0, 0.5), (0, 1, 0), (0.5, 0, 0.5)))), "but 2 does not send to 0"),
        (Listed(PATH, mixing=Fixed(((0.5, 0.4, 0), (0.2, 0.5, 0.3), (0, 0.5, 0.5)))),
         r"rows sum to 0\.9\.\.1 and whose columns to 0\.7\.\.1\.4"),
    ],
)  # fmt: skip
def test_topologies_that_cannot_be_are_refused(topology: Topology, words: str) -> None:
    """One-way edges, a wrong shape, no numbers, weight where no edge is, sums that are not one."""
    with pytest.raises(ConfigurationError, match=words):
        topology.check()
    Listed(ONE_SIDED, directed=True).check()


@pytest.mark.parametrize(
    ("name", "words"),
    [("neighbors", "define out_neighbors"), ("in_neighbors", "define out_neighbors"),
     ("weights", "write a Mixing")],
)  # fmt: skip
def test_a_class_that_defines_what_follows_is_told_what_to_define(name: str, words: str) -> None:
    """As soon as the class is written."""
    with pytest.raises(ConfigurationError, match=f"Mine defines {name}, .*{words}"):
        type("Mine", (Topology,), {name: lambda self, rank: ()})


def test_topologies_are_data() -> None:
    """Equal ones compare and hash equal, they print as they are written and cannot be changed.

    After use, description, hash, equality and copies are as before, and copies carry no tables.
    """
    assert len({Ring(4), Ring(4), Complete(4), Ring(4, Uniform())}) == 3
    assert eval(repr(Ring(4, ColumnStochastic()))) == Ring(4, ColumnStochastic()) != Ring(4)
    with pytest.raises(AttributeError):
        Ring(4).agents = 5  # type: ignore[misc]
    fresh, used = Ring(200), Ring(200)
    used.weights()
    assert used == fresh and digest(used) == digest(fresh)
    assert canonical(used) == {"class": "d5ray.distributed.topology.Ring", "agents": 200, "mixing": None}
    assert len(pickle.dumps(used)) == len(pickle.dumps(fresh)) < 300
    for twin in (pickle.loads(pickle.dumps(used)), copy.deepcopy(used), dataclasses.replace(used)):
        assert twin == used
        np.testing.assert_array_equal(twin.weights(), used.weights())
    own, before = Path(3), digest(Path(3))
    own.weights()
    assert digest(own) == before and pickle.loads(pickle.dumps(own)).agents == 3
