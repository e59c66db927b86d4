"""Claims about every topology that d5ray brings, over sizes from 1 to 33, and about a user's own."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx
import numpy as np
import pytest

from d5ray.distributed.topologies.graph import CommunicationGraph
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import canonical, digest
from d5ray.topologies import (
    Bipartite,
    ColumnStochastic,
    Complete,
    Custom,
    DirectedRing,
    Exponential,
    Hypercube,
    MetropolisHastings,
    Mixing,
    OnePeerExponential,
    RandomRegular,
    Ring,
    Star,
    TimeVarying,
    Torus,
    Tree,
    Uniform,
)

SIZES = range(1, 34)
SHAPES = [(1, 1), (1, 5), (5, 1), (2, 2), (2, 3), (3, 2), (3, 3), (4, 8), (3, 11)]
EVERY: list[Topology] = [
    *(kind(agents) for kind in (Complete, Ring, Star, Tree, DirectedRing, Exponential, OnePeerExponential)
      for agents in SIZES),
    *(Star(agents, center=agents - 1) for agents in SIZES),
    *(Tree(agents, branching) for branching in (1, 3, 40) for agents in SIZES),
    *(Hypercube(2**dimension) for dimension in range(6)),
    *(Torus(*shape) for shape in SHAPES),
    *(Bipartite(*shape) for shape in SHAPES),
    *(RandomRegular(agents, degree) for agents in SIZES for degree in (2, 3, agents - 1)
      if agents * degree % 2 == 0 and degree < agents and agents > 2),
    RandomRegular(1, 0), RandomRegular(2, 1), RandomRegular(33, 30), RandomRegular(16, 4, seed=7),
    *(TimeVarying((Ring(agents), Star(agents), OnePeerExponential(agents))) for agents in SIZES),
    *(Custom(networkx.path_graph(agents)) for agents in SIZES),
    *(Custom(networkx.cycle_graph(agents, create_using=networkx.DiGraph)) for agents in SIZES[1:]),
]  # fmt: skip


@pytest.mark.parametrize("topology", EVERY, ids=repr)
def test_every_topology_makes_sense(topology: Topology) -> None:
    """Senders and receivers agree, weights are on edges alone, mixing keeps the mean, nobody is cut off."""
    topology.check()
    agents, reached = topology.agents, np.eye(topology.agents)
    for round in range(topology.period):
        out = [topology.out_neighbors(rank, round) for rank in range(agents)]
        into = [topology.in_neighbors(rank, round) for rank in range(agents)]
        edges = {(sender, receiver) for sender in range(agents) for receiver in out[sender]}
        assert edges == {(sender, receiver) for receiver in range(agents) for sender in into[receiver]}
        assert all(list(ranks) == sorted(set(ranks)) for ranks in out + into)
        if not topology.directed:
            assert edges == {(receiver, sender) for sender, receiver in edges}
            assert [topology.neighbors(rank, round) for rank in range(agents)] == out
            np.testing.assert_array_equal(topology.weights(round), topology.weights(round).T)
        weights = topology.weights(round)
        closed = {(receiver, sender) for sender, receiver in edges} | {(rank, rank) for rank in range(agents)}
        assert {(int(i), int(j)) for i, j in np.argwhere(weights > 1e-15)} == closed
        assert weights.min() >= 0
        np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-14)
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-14)  # of these directed ones too
        assert topology.out_neighbors(0, round) == topology.out_neighbors(0, round + topology.period)
        reached = weights @ reached
    period = reached
    for _ in range(agents):
        reached = period @ reached
    assert (reached > 0).all()


PEERS: list[tuple[Topology, Any]] = [
    (Complete(7), networkx.complete_graph(7)),
    (Ring(9), networkx.cycle_graph(9)),
    (Star(9), networkx.star_graph(8)),
    (Tree(15), networkx.balanced_tree(2, 3)),
    (Tree(13, branching=3), networkx.balanced_tree(3, 2)),
    (Tree(12), networkx.full_rary_tree(2, 12)),
    (Tree(6, branching=1), networkx.path_graph(6)),
    (Hypercube(16), networkx.hypercube_graph(4)),
    (Torus(4, 5), networkx.grid_2d_graph(4, 5, periodic=True)),
    (Torus(2, 5), networkx.Graph(networkx.grid_2d_graph(2, 5, periodic=(False, True)))),
    (Bipartite(3, 4), networkx.complete_bipartite_graph(3, 4)),
    (Exponential(16), networkx.circulant_graph(16, [1, 2, 4, 8], create_using=networkx.DiGraph)),
]


@pytest.mark.parametrize(("topology", "peer"), PEERS, ids=[repr(topology) for topology, _ in PEERS])
def test_shapes_are_those_of_networkx(topology: Topology, peer: Any) -> None:
    """The same graph up to the nodes' names, which are the same where networkx counts as we do."""
    graph = topology.graph()
    if isinstance(topology, Exponential):
        peer = networkx.DiGraph((i, (i + hop) % 16) for i in range(16) for hop in (1, 2, 4, 8))
    if next(iter(peer)) == 0:
        assert set(graph.edges) == set(peer.to_directed().edges)
    else:
        assert networkx.is_isomorphic(graph, peer.to_directed())


HANDS: list[tuple[Topology, int, int, tuple[int, ...]]] = [  # topology, rank, round, out_neighbors
    (Torus(3, 4), 0, 0, (1, 3, 4, 8)), (Torus(3, 4), 6, 0, (2, 5, 7, 10)),  # row · columns + column
    (Torus(2, 4), 0, 0, (1, 3, 4)), (Torus(2, 2), 3, 0, (1, 2)),  # of two the ways round are one neighbour
    *((Torus(1, 5), rank, 0, Ring(5).neighbors(rank)) for rank in range(5)),
    (Ring(1), 0, 0, ()), (Ring(2), 0, 0, (1,)), (Ring(4), 0, 0, (1, 3)), (Ring(5), 4, 0, (0, 3)),
    (Exponential(8), 6, 0, (0, 2, 7)), (Exponential(6), 5, 0, (0, 1, 3)),  # hops 1, 2, 4
    *((OnePeerExponential(8), 6, round, (to,)) for round, to in enumerate((7, 0, 2, 7, 0))),
    (DirectedRing(3), 2, 0, (0,)),
]  # fmt: skip


def test_neighbours_by_hand() -> None:
    for topology, rank, round, expected in HANDS:
        assert topology.out_neighbors(rank, round) == expected
    periods = [OnePeerExponential(agents).period for agents in (1, 2, 3, 4, 5, 8, 9, 33)]
    assert periods == [1, 1, 2, 2, 3, 3, 4, 6]
    assert Torus(3, 4).agents == 12 and len({digest(each) for each in EVERY}) == len(set(EVERY)) > 500


def test_random_regular_graphs() -> None:
    """Everyone has the degree, seeds differ; a seed whose graph falls apart gives the next one's."""
    for seed in range(5):
        topology = RandomRegular(20, 3, seed=seed)
        assert {len(topology.neighbors(rank)) for rank in range(20)} == {3}
    drawn = [[RandomRegular(20, 3, seed=seed).neighbors(rank) for rank in range(20)] for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    apart = next(
        s for s in range(99) if not networkx.is_connected(networkx.random_regular_graph(2, 12, seed=s))
    )
    following = [RandomRegular(12, 2, seed=seed).adjacency().tolist() for seed in (apart, apart + 1)]
    assert following[0] == following[1]


def test_time_varying_takes_turns() -> None:
    """Round k is topology k mod m at its own round k // m, with its own weights."""
    turns = TimeVarying((OnePeerExponential(8), Ring(8, mixing=Uniform()), Exponential(8)))
    assert (turns.period, turns.directed, turns.agents) == (9, True, 8)
    assert [turns.out_neighbors(0, round) for round in range(10)] == [
        (1,), (1, 7), (1, 2, 4), (2,), (1, 7), (1, 2, 4), (4,), (1, 7), (1, 2, 4), (1,)
    ]  # fmt: skip
    np.testing.assert_array_equal(turns.weights(3), OnePeerExponential(8).weights(1))
    np.testing.assert_array_equal(turns.weights(15), OnePeerExponential(8).weights(2))
    np.testing.assert_array_equal(turns.weights(8), Exponential(8).weights())
    nested = TimeVarying((OnePeerExponential(8), TimeVarying((Ring(8), Star(8)))))  # periods 3 and 2
    assert nested.period == 12
    firsts = [nested.out_neighbors(1, round) for round in range(12)]
    assert firsts == [(2,), (0, 2), (3,), (0,), (5,), (0, 2), (2,), (0,), (3,), (0, 2), (5,), (0,)]
    given = TimeVarying((Star(4), Ring(4)), mixing=Uniform())
    np.testing.assert_array_equal(given.weights(0), Star(4, mixing=Uniform()).weights())
    assert TimeVarying([Ring(4), Star(4)]) == TimeVarying((Ring(4), Star(4)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (Bipartite(2, 3), ((0, 1), (2, 3, 4))), (Ring(6), ((0, 2, 4), (1, 3, 5))),
        (DirectedRing(4), ((0, 2), (1, 3))), (Tree(7), ((0, 3, 4, 5, 6), (1, 2))),
        (Star(4, center=2), ((0, 1, 3), (2,))), (Hypercube(8), ((0, 3, 5, 6), (1, 2, 4, 7))),
        (Torus(2, 4), ((0, 2, 5, 7), (1, 3, 4, 6))), (Complete(1), ((0,), ())),
    ],
    ids=repr,
)  # fmt: skip
def test_two_sides(topology: Topology, expected: Any) -> None:
    assert topology.sides == expected


TURNS = TimeVarying((Tree(4, branching=1), Bipartite(1, 3)))  # an odd cycle over all rounds
WRONG: list[tuple[Callable[[], object], str]] = [
    *((lambda kind=kind, wrong=wrong: kind(wrong), f"agents is {wrong!r}")
      for kind in (Complete, Ring) for wrong in (0, -1, 2.0, "4", True, None)),
    *((lambda wrong=wrong: Ring(4, mixing=wrong), "mixing is .* must be a Mixing")
      for wrong in (Uniform, "uniform", 0)),
    (lambda: Torus(0, 4), "rows is 0"),
    (lambda: Torus(3, 2.0), "columns is 2.0"),  # type: ignore[arg-type]
    (lambda: Star(4, center=4), "center is 4, .* 0 to 3"),
    (lambda: Star(4, center=-1), "center is -1"),
    (lambda: Tree(4, branching=0), "branching is 0"),
    (lambda: Hypercube(6), "agents is 6: .* take 4 or 8"),
    (lambda: Hypercube(0), "agents is 0"),
    (lambda: Bipartite(3, 0), "right is 0"),
    (lambda: RandomRegular(5, 5), "nobody has more than 4 others"),
    (lambda: RandomRegular(5, 3), "must be even, .* take degree 2 or 4, or 6 agents"),
    (lambda: RandomRegular(8, 1), "cannot be connected: take degree 2"),
    (lambda: RandomRegular(2, 0), "cannot be connected: take degree 1"),
    (lambda: RandomRegular(8, 3, seed=-1), "seed is -1"),
    (lambda: TimeVarying(()), "must be a tuple of topologies"),
    (lambda: TimeVarying(Ring(4)), "must be a tuple of topologies"),  # type: ignore[arg-type]
    (lambda: TimeVarying((Ring(4), Torus(2, 3))), "equally many agents"),
    (lambda: Exponential(5, mixing=MetropolisHastings()).check(), "is directed .3 sends to 0"),
    *((lambda each=each: each.sides, r"no two sides, since an odd cycle goes through \d and \d")
      for each in (TURNS, Ring(5), Complete(3), DirectedRing(3))),
]  # fmt: skip


@pytest.mark.parametrize(("make", "words"), WRONG, ids=[words[:40] for _, words in WRONG])
def test_what_cannot_be_is_refused(make: Callable[[], object], words: str) -> None:
    """With what was found, and what is needed or to be done."""
    with pytest.raises(ConfigurationError, match=words):
        make()


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
    """Of 0 → 1 → 2 → 3 → (0, 1), by hand; `neighbors` are those of both ways."""
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


TARGETS: dict[str, list[Any]] = {
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
    """Equal ones compare and hash equal, they print as they are written and cannot be changed."""
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
