"""The graph over the ranks of agents, round after round; its adjacency table, and what follows from that"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, final

import numpy as np

from d5ray.checks import MOST_RANKS, KnownKeywords, check_count
from d5ray.errors import ConfigurationError

Table = np.ndarray[Any, np.dtype[np.bool_]]
Matrix = np.ndarray[Any, np.dtype[np.float64]]


class CommunicationGraph(KnownKeywords, ABC):
    """A graph of who sends to whom among `agents` members, ranks from 0; it is data and never changes."""

    agents: int

    @abstractmethod
    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        """The other members that `rank` sends to at this round: ascending, each once."""

    @property
    def directed(self) -> bool:
        """True if a member may send to one that does not send to it."""
        return False

    @property
    def period(self) -> int:
        """Rounds after which the graph repeats; 1: it never changes."""
        return 1

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
        table: Table = self._remember("adjacency", round, lambda turn: adjacency_matrix(self, turn))
        return table

    # -----------------------------------------------------------------------------------------------------

    @cached_property
    def _tables(self) -> dict[tuple[str, int], Any]:
        return {}

    def _remember(self, what: str, round: int, make: Callable[[int], Any]) -> Any:
        key = (what, round % self.period)
        if key not in self._tables:
            self._tables[key] = make(key[1])
        return self._tables[key]

    def __getstate__(self) -> dict[str, Any]:
        kept = vars(self).items()  # but for what can be made again
        return {
            name: value
            for name, value in kept
            if not isinstance(getattr(type(self), name, None), cached_property)
        }


def adjacency_matrix(graph: CommunicationGraph, round: int) -> Table:
    """(agents, agents), read-only: [i, j] says whether i gets from j.

    Raises `ConfigurationError` where the graph's `out_neighbors` cannot be.
    """
    agents = graph.agents
    table = np.zeros((agents, agents), dtype=np.bool_)
    for rank in range(agents):
        targets = graph.out_neighbors(rank, round)
        if not isinstance(targets, tuple) or not _are_others(targets, rank, agents):
            raise ConfigurationError(
                f"{graph}.out_neighbors({rank}, {round}) is {targets!r}: it must be a tuple of other "
                f"ranks between 0 and {agents - 1}, ascending, each once"
            )
        table[list(targets), rank] = True
    if not graph.directed and (one_way := first_one_way(table)):
        sender, receiver = one_way
        raise ConfigurationError(
            f"{graph} is not directed, yet at round {round} {sender} sends to {receiver} and {receiver} "
            f"not to {sender}: let both send, or give the class `directed = True`"
        )
    table.setflags(write=False)
    return table


def first_one_way(table: Table) -> tuple[int, int] | None:
    """The first (sender, receiver) without the way back, or None."""
    receivers, senders = np.nonzero(table & ~table.T)
    return (int(senders[0]), int(receivers[0])) if senders.size else None


def _are_others(targets: tuple[object, ...], rank: int, agents: int) -> bool:
    """True if these are other ranks, ascending, each once."""
    if not targets:
        return True
    found = np.array(targets)
    return bool(
        found.dtype.kind in "iu"
        and found.ndim == 1
        and found[0] >= 0
        and found[-1] < agents
        and (np.diff(found) > 0).all()
        and not (found == rank).any()
    )


def check_agents(agents: object) -> None:
    """Raise `ConfigurationError` unless this is an integer of at least one agent."""
    check_count("agents", agents, high=MOST_RANKS)


def union(graph: CommunicationGraph) -> Table:
    """[i, j]: whether i gets from j at any round."""
    rounds = [graph.adjacency(round) for round in range(graph.period)]
    return np.asarray(np.logical_or.reduce(rounds))


def first_unreached(graph: CommunicationGraph) -> tuple[int, int] | None:
    """A pair (sender, receiver) such that nothing ever gets from one to the other, or None."""
    table = union(graph)
    for receives in (table, table.T):
        reached = np.arange(graph.agents) == 0
        while (wider := reached | receives[:, reached].any(axis=1)).sum() > reached.sum():
            reached = wider
        if not reached.all():
            other = int(np.argmin(reached))
            return (0, other) if receives is table else (other, 0)
    return None


def two_sides(graph: CommunicationGraph) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks of two sides such that every edge of any round goes across; that of rank 0 comes first.

    >>> from d5ray.distributed.topologies.topology import Ring
    >>> two_sides(Ring(6))
    ((0, 2, 4), (1, 3, 5))
    """
    table = union(graph)
    around = [np.flatnonzero(row).tolist() for row in table | table.T]
    side: dict[int, int] = {}
    for start in range(graph.agents):
        waiting = [start] if start not in side else []
        side.setdefault(start, 0)
        while waiting:
            rank = waiting.pop()
            for other in around[rank]:
                if other not in side:
                    side[other] = 1 - side[rank]
                    waiting.append(other)
                elif side[other] == side[rank]:
                    raise ConfigurationError(
                        f"{graph} has no two sides, since an odd cycle goes through {rank} and {other}: "
                        "take Bipartite, Star, Tree, Hypercube, or a ring or torus of even size"
                    )
    first, second = (tuple(rank for rank in sorted(side) if side[rank] == which) for which in (0, 1))
    return first, second


def networkx_graph(graph: CommunicationGraph, weights: Matrix, round: int) -> Any:
    """A `networkx.DiGraph` with an edge from j to i of "weight" W[i, j] where i gets from j.

    Each node's "weight" is W[i, i], so that `Custom` of this graph has the same weights.
    """
    import networkx  # noqa: PLC0415 - a quarter of a second, which only those pay who ask for a graph

    made = networkx.DiGraph()
    made.add_nodes_from((rank, {"weight": float(weights[rank, rank])}) for rank in range(graph.agents))
    receivers, senders = np.nonzero(graph.adjacency(round))
    made.add_weighted_edges_from(
        (int(j), int(i), float(weights[i, j])) for i, j in zip(receivers, senders, strict=True)
    )
    return made
