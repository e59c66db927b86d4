"""Who exchanges with whom, and with which weights"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from os import PathLike
from typing import Any, final

from d5ray.checks import MOST_RANKS, check_count
from d5ray.distributed.topologies.adjacency import Matrix, Table, adjacency_matrix, networkx_graph, two_sides
from d5ray.distributed.topologies.layout import Point, circle
from d5ray.distributed.topologies.mixing import ColumnStochastic, MetropolisHastings, Mixing, mixing_matrix
from d5ray.distributed.topologies.notebook import MOST_AGENTS, described
from d5ray.distributed.topologies.picture import MOST_EDGES, picture
from d5ray.distributed.topologies.spectrum import rounds_to_consensus, spectral_gap
from d5ray.errors import ConfigurationError


class Topology(ABC):
    """Who sends to whom among `agents` members, whose ranks begin with 0; each also keeps its own share.

    A topology is data and never changes. One of your own is a subclass with `agents` and `out_neighbors`;
    `directed` and `period` where they differ from here. All else follows.

    mixing   gives the weights; None: `MetropolisHastings()`, for a directed graph `ColumnStochastic()`
    """

    agents: int
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

    @abstractmethod
    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        """The other members that `rank` sends to at this round: ascending, each once."""

    @property
    def directed(self) -> bool:
        """Whether a member may send to one that does not send to it."""
        return False

    @property
    def period(self) -> int:
        """Rounds after which the graph repeats; 1: it never changes."""
        return 1

    @property
    def default_mixing(self) -> Mixing:
        """What gives the weights where `mixing` is None."""
        return ColumnStochastic() if self.directed else MetropolisHastings()

    def positions(self) -> list[Point]:
        """Where the picture has each member, by rank: (x, y) in any unit, y downward."""
        return circle(self.agents)

    # -- what follows -------------------------------------------------------------------------------------

    @final
    def in_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        """The other members that send to `rank` at this round, ascending."""
        if not self.directed:
            return self.out_neighbors(rank, round)
        return tuple(self.adjacency(round)[rank].nonzero()[0].tolist())

    @final
    def neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        """The other members that send to `rank` or that it sends to at this round, ascending."""
        targets = self.out_neighbors(rank, round)
        return tuple(sorted({*targets, *self.in_neighbors(rank, round)})) if self.directed else targets

    @final
    def adjacency(self, round: int = 0) -> Table:
        """(agents, agents) bool, read-only: [i, j] says whether i gets from j at this round."""
        table: Table = self._remember("adjacency", round, adjacency_matrix)
        return table

    @final
    def weights(self, round: int = 0) -> Matrix:
        """The mixing matrix W (agents, agents), read-only: i gives W[i, j] to what it gets from j.

        >>> Ring(4).weights()[0].round(3).tolist()
        [0.333, 0.333, 0.0, 0.333]
        """
        matrix: Matrix = self._remember("weights", round, mixing_matrix)
        return matrix

    @final
    def graph(self, round: int = 0) -> Any:
        """A `networkx.DiGraph`: edges from sender to receiver; "weight" of edges and nodes is what W has."""
        return networkx_graph(self, round)

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
        return spectral_gap(self)

    @final
    def rounds_to_consensus(self, tolerance: float = 1e-3) -> int | None:
        """Rounds until all are within `tolerance` of the mean; see `spectrum.rounds_to_consensus`."""
        return rounds_to_consensus(self, tolerance)

    @final
    def picture(
        self, path: str | PathLike[str] | None = None, label: Callable[[float], str] | None = None
    ) -> str:
        """The graph as an SVG, which is also written to `path`; see `picture.picture`."""
        return picture(self, path, label)

    def _repr_svg_(self) -> str | None:
        few = sum(int(self.adjacency(round).sum()) for round in range(self.period)) <= MOST_EDGES
        return self.picture() if few else None

    def _repr_html_(self) -> str:
        return described(self, self._repr_svg_() if self.agents <= MOST_AGENTS else None)

    def __repr__(self) -> str:
        itself: Any = self
        if not is_dataclass(itself):
            return super().__repr__()
        shown = [field.name for field in fields(itself) if field.init and field.repr]
        given = [name for name in shown if name != "mixing" or self.mixing is not None]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in given)})"

    # -----------------------------------------------------------------------------------------------------

    @cached_property
    def _tables(self) -> dict[tuple[str, int], Any]:
        return {}

    def _remember(self, what: str, round: int, make: Callable[["Topology", int], Any]) -> Any:
        key = (what, round % self.period)
        if key not in self._tables:
            self._tables[key] = make(self, key[1])
        return self._tables[key]

    def __getstate__(self) -> dict[str, Any]:
        kept = vars(self).items()  # but for what can be made again
        return {
            name: value
            for name, value in kept
            if not isinstance(getattr(type(self), name, None), cached_property)
        }


@final
@dataclass(frozen=True, repr=False)
class Complete(Topology):
    """Everyone with everyone."""

    agents: int
    mixing: Mixing | None = None

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return (*range(rank), *range(rank + 1, self.agents))


@final
@dataclass(frozen=True, repr=False)
class Ring(Topology):
    """Everyone with the next and the one before; two agents are each other's only neighbour."""

    agents: int
    mixing: Mixing | None = None

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        around = {(rank - 1) % self.agents, (rank + 1) % self.agents}
        return tuple(sorted(around - {rank}))


def check_agents(agents: object) -> None:
    """Raise `ConfigurationError` unless this is a whole number of at least one agent."""
    check_count("agents", agents, high=MOST_RANKS)
