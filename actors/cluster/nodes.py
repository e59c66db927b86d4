"""The nodes of the Ray cluster that a run uses: their shape, and the environment of each"""

import platform
from collections.abc import Sequence
from typing import Any

import ray

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.actors.cluster.placement import Place
from d5ray.metrics.probes.environment import capture
from d5ray.metrics.probes.numeric_libraries import computing


def environments(
    here: dict[str, str], home: str, agents: Sequence[Any], places: Sequence[Place]
) -> dict[str, dict[str, str]]:
    """The environment of each node by host name, and of an agent's process there.

    here: that of the driver's node, which is home. agents: None where one is not there.
    """
    one = {place.node: (place, agent) for agent, place in zip(agents, places, strict=True) if agent}
    calls = [
        agent.__ray_call__.remote(_computing if place.node == home else _capture)
        for place, agent in one.values()
    ]
    facts = {platform.node(): here | shape()}
    for (place, _), found in zip(one.values(), get(calls, CALL_SECONDS, "describe its node"), strict=True):
        name = platform.node() if place.node == home else place.hostname
        facts[name] = facts.get(name, {}) | found
    return facts


def _capture(_actor: object) -> dict[str, str]:
    return capture() | computing()


def _computing(_actor: object) -> dict[str, str]:
    return computing()


def shape() -> dict[str, str]:
    """Nodes, CPUs, GPUs and memory, as Ray counts them, and each node with its resources."""
    nodes = sorted(
        (node for node in ray.nodes() if node["Alive"]), key=lambda node: node["NodeManagerHostname"]
    )
    total: dict[str, Any] = ray.cluster_resources()
    return {
        "ray_version": ray.__version__,
        "ray_nodes": str(len(nodes)),
        "ray_cpus": f"{total.get('CPU', 0):g}",
        "ray_gpus": f"{total.get('GPU', 0):g}",
        "ray_memory_bytes": f"{total.get('memory', 0):.0f}",
        "ray_object_store_bytes": f"{total.get('object_store_memory', 0):.0f}",
        "ray_node_resources": "; ".join(
            f"{node['NodeManagerHostname']}: {node['Resources'].get('CPU', 0):g} CPUs, "
            f"{node['Resources'].get('GPU', 0):g} GPUs"
            for node in nodes
        ),
    }
