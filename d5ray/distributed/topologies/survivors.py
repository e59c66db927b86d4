"""The topology among those agents that are there"""

from collections.abc import Collection
from typing import Any

from d5ray.distributed.one_sided.peers import reachable
from d5ray.distributed.topologies.custom import Custom
from d5ray.distributed.topologies.time_varying import TimeVarying
from d5ray.distributed.topologies.topology import Complete, Topology


def survivors(topology: Topology, gone: Collection[int]) -> Topology:
    """The topology of those that are left, in their order; who is gone passes on what it links."""
    if not gone:
        return topology
    left = [rank for rank in range(topology.agents) if rank not in gone]
    if isinstance(topology, Complete):
        return Complete(len(left), topology.mixing)
    rounds = [_graph(topology, left, gone, round) for round in range(topology.period)]
    return rounds[0] if len(rounds) == 1 else TimeVarying(tuple(rounds))


def _graph(topology: Topology, left: list[int], gone: Collection[int], round: int) -> Topology:
    import networkx  # noqa: PLC0415 - takes a while, and is rarely needed

    graph: Any = networkx.DiGraph() if topology.directed else networkx.Graph()
    graph.add_nodes_from(range(len(left)))
    for index, rank in enumerate(left):
        for other in reachable(topology, rank, round, gone):
            graph.add_edge(index, left.index(other))
    return Custom(graph, mixing=topology.mixing)
