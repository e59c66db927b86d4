"""Topology: who exchanges with whom, and with which weights"""

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from os import PathLike
from typing import Any, final

from d5ray.checks import with_settings
from d5ray.distributed.topologies.graph import (
    CommunicationGraph,
    Matrix,
    check_agents,
    networkx_graph,
    two_sides,
)
from d5ray.distributed.topologies.layout import Point, circle
from d5ray.distributed.topologies.mixing import ColumnStochastic, MetropolisHastings, Mixing, mixing_matrix
from d5ray.distributed.topologies.picture import MOST_AGENTS, MOST_EDGES, Drawing, described, picture
from d5ray.distributed.topologies.spectrum import rounds_to_consensus, spectral_gap
from d5ray.errors import ConfigurationError


class Topology(CommunicationGraph):
    """A graph of `agents` members, ranks from 0; each sends to its neighbours and keeps its own share.

    A topology is data and never changes. One of your own is a subclass with `agents` and `out_neighbors`;
    `directed` and `period` where they differ from here. All else follows.

    mixing   gives the weights; None: `MetropolisHastings()`, for a directed graph `ColumnStochastic()`
    """

    mixing: Mixing | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("neighbors", "in_neighbors"):
            if name in vars(cls):
                raise ConfigurationError(
                    f"{cls.__name__} defines {name}, which follows from out_neighbors: define "
                    "out_neighbors(self, rank, round=0), the ranks that `rank` sends to, instead"
                )
        if "weights" in vars(cls):
            raise ConfigurationError(
                f"{cls.__name__} defines weights, which come from the mixing: write a Mixing with "
                "matrix(self, topology, round) and give it as mixing=..."
            )

    def __post_init__(self) -> None:
        check_agents(self.agents)
        if self.mixing is not None and not isinstance(self.mixing, Mixing):
            raise ConfigurationError(
                f"mixing is {self.mixing!r}: it must be a Mixing such as MetropolisHastings(), or None"
            )

    # -- what a topology says -----------------------------------------------------------------------------

    @property
    def default_mixing(self) -> Mixing:
        """The rule that gives the weights where `mixing` is None."""
        return ColumnStochastic() if self.directed else MetropolisHastings()

    def positions(self) -> list[Point]:
        """The position of each member in the picture, by rank: (x, y) in any unit, y downward."""
        return circle(self.agents)

    # -- what follows -------------------------------------------------------------------------------------

    @final
    def weights(self, round: int = 0) -> Matrix:
        """The mixing matrix W (agents, agents), read-only: i gives W[i, j] to what it gets from j.

        >>> Ring(4).weights()[0].round(3).tolist()
        [0.333, 0.333, 0.0, 0.333]
        """
        matrix: Matrix = self._remember("weights", round, self._mixed)
        return matrix

    @final
    def graph(self, round: int = 0) -> Any:
        """A `networkx.DiGraph`: edges from sender to receiver; "weight" of edges and nodes is what W has."""
        return networkx_graph(self, self.weights(round), round)

    @final
    @property
    def sides(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The members in two groups without an edge inside; `ConfigurationError` where there are none."""
        return two_sides(self)

    @final
    def check(self) -> None:
        """Raise `ConfigurationError` unless neighbours and weights of every round make sense."""
        check_agents(self.agents)
        for round in range(self.period):
            self.weights(round)

    @final
    def spectral_gap(self) -> float:
        """1 − |λ₂| of W: 1 averages in one round, 0 never; see `spectrum.spectral_gap`."""
        return spectral_gap(self._rounds())

    @final
    def rounds_to_consensus(self, tolerance: float = 1e-3) -> int | None:
        """Rounds until all are within `tolerance` of the mean; see `spectrum.rounds_to_consensus`."""
        return rounds_to_consensus(self, self._rounds(), tolerance)

    @final
    def picture(
        self, path: str | PathLike[str] | None = None, label: Callable[[float], str] | None = None
    ) -> str:
        """The graph as an SVG, which is also written to `path`; see `picture.picture`."""
        rounds = [(self.adjacency(round), self.weights(round)) for round in range(self.period)]
        return picture(Drawing(repr(self), self.positions(), rounds, self.spectral_gap()), path, label)

    def _mixed(self, round: int) -> Matrix:
        return mixing_matrix(self.default_mixing if self.mixing is None else self.mixing, self, round)

    def _rounds(self) -> list[Matrix]:
        return [self.weights(round) for round in range(self.period)]

    def _repr_svg_(self) -> str | None:
        few = sum(int(self.adjacency(round).sum()) for round in range(self.period)) <= MOST_EDGES
        return self.picture() if few else None

    def _repr_html_(self) -> str:
        return described(self, self.spectral_gap, self._repr_svg_() if self.agents <= MOST_AGENTS else None)

    def __repr__(self) -> str:
        itself: Any = self
        if not is_dataclass(itself):
            return with_settings(self)
        shown = [field.name for field in fields(itself) if field.init and field.repr]
        given = [name for name in shown if name != "mixing" or self.mixing is not None]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in given)})"


@final
@dataclass(frozen=True, repr=False)
class Complete(Topology):
    """The complete graph: everyone sends to everyone."""

    agents: int
    mixing: Mixing | None = None

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return (*range(rank), *range(rank + 1, self.agents))


@final
@dataclass(frozen=True, repr=False)
class Ring(Topology):
    """A ring: everyone with the next and the one before; two agents are each other's only neighbour."""

    agents: int
    mixing: Mixing | None = None

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        around = {(rank - 1) % self.agents, (rank + 1) % self.agents}
        return tuple(sorted(around - {rank}))


@dataclass(frozen=True)
class Neighborhood:
    """The neighbours of one member at one round, and the weights that it mixes by."""

    own: float  # weight of what it has itself
    sources: dict[int, float]  # who sends to it, and the weight that it gives to that
    targets: tuple[int, ...]  # whom it sends to


def neighborhood(topology: Topology, rank: int, round: int) -> Neighborhood:
    """The neighbourhood of the member with this rank."""
    row = topology.weights(round)[rank]
    return Neighborhood(
        own=float(row[rank]),
        sources={other: float(row[other]) for other in topology.in_neighbors(rank, round)},
        targets=topology.out_neighbors(rank, round),
    )


def drawn(topology: Topology) -> str:
    """The topology as JSON: `name`, `directed`, `positions` by rank (y downward), `edges`.

    The edges, from sender to receiver, are those of all rounds; of a graph that has both directions each edge
    stands there once, lower rank first. null in their place: there are more than `MOST_EDGES`.

    >>> json.loads(drawn(Ring(3)))["edges"]
    [[0, 1], [0, 2], [1, 2]]
    """
    edges: set[tuple[int, int]] | None = set()
    for turn in range(topology.period):
        for rank in range(topology.agents):
            others = topology.out_neighbors(rank, turn)
            if edges is not None:
                edges |= {(rank, other) for other in others if topology.directed or rank < other}
                if len(edges) > MOST_EDGES:
                    edges = None
        if edges is None:
            break
    positions = [
        [round(float(x), 4), round(float(y), 4)] for x, y in topology.positions()
    ]  # enough for a picture
    return json.dumps(
        {
            "name": repr(topology),
            "directed": topology.directed,
            "positions": positions,
            "edges": None if edges is None else sorted(edges),
        }
    )
