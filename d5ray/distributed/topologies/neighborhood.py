"""Neighbourhood: one member's part of a topology at one round"""

from dataclasses import dataclass

from d5ray.distributed.topologies.topology import Topology


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
