"""Who gets from whom as a table, and what follows from it: reach, sides, the graph of networkx"""

from typing import TYPE_CHECKING, Any

import numpy as np

from d5ray.errors import ConfigurationError

if TYPE_CHECKING:
    from d5ray.distributed.topologies.topology import Topology

Table = np.ndarray[Any, np.dtype[np.bool_]]
Matrix = np.ndarray[Any, np.dtype[np.float64]]


def _are_others(targets: tuple[object, ...], rank: int, agents: int) -> bool:
    """Whether these are other ranks, ascending, each once."""
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


def adjacency_matrix(topology: "Topology", round: int) -> Table:
    """(agents, agents), read-only: [i, j] says whether i gets from j.

    Raises `ConfigurationError` where the topology's `out_neighbors` cannot be.
    """
    agents = topology.agents
    table = np.zeros((agents, agents), dtype=np.bool_)
    for rank in range(agents):
        targets = topology.out_neighbors(rank, round)
        if not isinstance(targets, tuple) or not _are_others(targets, rank, agents):
            raise ConfigurationError(
                f"{topology}.out_neighbors({rank}, {round}) is {targets!r}: it must be a tuple of other "
                f"ranks between 0 and {agents - 1}, ascending, each once"
            )
        table[list(targets), rank] = True
    if not topology.directed and (one_way := first_one_way(table)):
        sender, receiver = one_way
        raise ConfigurationError(
            f"{topology} is not directed, yet at round {round} {sender} sends to {receiver} and {receiver} "
            f"not to {sender}: let both send, or give the class `directed = True`"
        )
    table.setflags(write=False)
    return table


def first_one_way(table: Table) -> tuple[int, int] | None:
    """The first (sender, receiver) without the way back, or None."""
    receivers, senders = np.nonzero(table & ~table.T)
    return (int(senders[0]), int(receivers[0])) if senders.size else None


def union(topology: "Topology") -> Table:
    """[i, j]: whether i gets from j at any round."""
    rounds = [topology.adjacency(round) for round in range(topology.period)]
    return np.asarray(np.logical_or.reduce(rounds))


def first_unreached(topology: "Topology") -> tuple[int, int] | None:
    """A pair (sender, receiver) such that nothing ever gets from one to the other, or None."""
    table = union(topology)
    for receives in (table, table.T):
        reached = np.arange(topology.agents) == 0
        while (wider := reached | receives[:, reached].any(axis=1)).sum() > reached.sum():
            reached = wider
        if not reached.all():
            other = int(np.argmin(reached))
            return (0, other) if receives is table else (other, 0)
    return None


def two_sides(topology: "Topology") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ranks of two sides such that every edge of any round goes across; that of rank 0 comes first.

    >>> from d5ray.distributed.topologies.topology import Ring
    >>> two_sides(Ring(6))
    ((0, 2, 4), (1, 3, 5))
    """
    table = union(topology)
    around = [np.flatnonzero(row).tolist() for row in table | table.T]
    side: dict[int, int] = {}
    for start in range(topology.agents):
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
                        f"{topology} has no two sides, since an odd cycle goes through {rank} and {other}: "
                        "take Bipartite, Star, Tree, Hypercube, or a ring or torus of even size"
                    )
    first, second = (tuple(rank for rank in sorted(side) if side[rank] == which) for which in (0, 1))
    return first, second


def networkx_graph(topology: "Topology", round: int) -> Any:
    """A `networkx.DiGraph` with an edge from j to i of "weight" W[i, j] where i gets from j.

    Each node's "weight" is W[i, i], so that `Custom` of this graph has the same weights.
    """
    import networkx  # noqa: PLC0415 - a quarter of a second, which only those pay who ask for a graph

    weights = topology.weights(round)
    graph = networkx.DiGraph()
    graph.add_nodes_from((rank, {"weight": float(weights[rank, rank])}) for rank in range(topology.agents))
    receivers, senders = np.nonzero(topology.adjacency(round))
    graph.add_weighted_edges_from(
        (int(j), int(i), float(weights[i, j])) for i, j in zip(receivers, senders, strict=True)
    )
    return graph
