"""Consequences of an adjacency table: reach, sides, the graph of networkx"""

from typing import Any

import numpy as np

from d5ray.distributed.topologies.graph import CommunicationGraph, Matrix, Table
from d5ray.errors import ConfigurationError


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
