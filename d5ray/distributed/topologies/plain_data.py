"""A topology as plain data, for those who draw a run without making its experiment again"""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from d5ray.distributed.topologies.topology import Topology

MOST_EDGES = 5000  # more of them nobody can tell apart


def drawn(topology: "Topology") -> str:
    """The topology as JSON: `name`, `directed`, `positions` by rank (y downward), `edges`.

    The edges, from sender to receiver, are those of all rounds; of a graph that has both directions each edge
    stands there once, lower rank first. null in their place: there are more than `MOST_EDGES`.

    >>> from d5ray.distributed.topologies.topology import Ring
    >>> json.loads(drawn(Ring(3)))["edges"]
    [[0, 1], [0, 2], [1, 2]]
    """
    edges: set[tuple[int, int]] | None = set()
    for round in range(topology.period):
        for rank in range(topology.agents):
            others = topology.out_neighbors(rank, round)
            if edges is not None:
                edges |= {(rank, other) for other in others if topology.directed or rank < other}
                if len(edges) > MOST_EDGES:
                    edges = None
        if edges is None:
            break
    positions = [[round_off(x), round_off(y)] for x, y in topology.positions()]
    return json.dumps(
        {
            "name": repr(topology),
            "directed": topology.directed,
            "positions": positions,
            "edges": None if edges is None else sorted(edges),
        }
    )


def round_off(length: float) -> float:
    """Few digits are enough for a picture."""
    return round(float(length), 4)
