"""Measures the latency and bandwidth between two agents of a cluster, for `d5ray doctor --network`"""

from datetime import UTC, datetime

import ray

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.actors.cluster.placement import Place, place_of
from d5ray.actors.group.coordinator import Coordinator
from d5ray.actors.remote import spawned
from d5ray.actors.session import session
from d5ray.distributed import network_cost
from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group
from d5ray.distributed.network_cost import LinkCost
from d5ray.distributed.topologies.topology import Complete

MEASURING_SECONDS = 120.0
ON_ONE_NODE = ("shared_memory", "socket")
BETWEEN_NODES = ("socket",)


class Endpoint:
    """One end of the network, a plain class; `measure_network` makes two actors of it."""

    def measure(self, group: Group, backend: str) -> list[tuple[int, float]]:
        """Seconds for messages of several sizes, see `cost.measure`."""
        communication = backends.join(backend, group, Complete(2))
        try:
            return network_cost.measure(communication)
        finally:
            communication.close()


def measure_network(address: str | None) -> list[LinkCost]:
    """Measure between two agents, on different nodes if the cluster has several; kept too."""
    session.connect(address, cpus=2, metadata={"task": "measure the network"}, quiet=True)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    with spawned(Endpoint, [(), ()], cpus=0.0 if len(nodes) > 1 else 0.5) as ends:
        places: list[Place] = get([end.__ray_call__.remote(place_of) for end in ends], CALL_SECONDS, "answer")
        hosts = tuple(place.hostname for place in places)
        names = ON_ONE_NODE if len({place.node for place in places}) == 1 else BETWEEN_NODES
        found = []
        for name in names:
            coordinator = Coordinator(f"network-{name}", MEASURING_SECONDS, place_of(None))
            try:
                groups = coordinator.issue(places)
                calls = [end.measure.remote(group, name) for end, group in zip(ends, groups, strict=True)]
                answers = get(calls, 2 * MEASURING_SECONDS, "measure the network")
            finally:
                coordinator.close()
            sizes = [size for size, _ in answers[0]]
            seconds = [max(times) for times in zip(*([t for _, t in a] for a in answers), strict=True)]
            latency, per_byte = network_cost.fit(sizes, seconds)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            found.append(LinkCost(name, latency, per_byte, hosts, now))
    network_cost.keep(found)
    return found
