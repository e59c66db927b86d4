"""The shape of the Ray cluster that a run uses, for its environment"""

from typing import Any

import ray


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
