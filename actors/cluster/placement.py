"""Placement of actors: room for all of them at once or an error that says how many fit, and where one runs"""

import ctypes
import os
import platform
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import psutil
import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from d5ray.errors import PlacementError
from d5ray.networks.graph import available_memory

AGENT_BYTES: Final = 200 << 20  # that a process with Ray and PyTorch does not share, before any model
PLACEMENT_SECONDS = 60.0  # for a busy cluster to make room


@dataclass(frozen=True)
class Place:
    """The node and the process of an actor."""

    node: str  # Ray's identifier
    address: str  # of the node
    hostname: str
    pid: int


def place_of(_actor: object) -> Place:
    """The place where this process runs."""
    context = ray.get_runtime_context()
    return Place(context.get_node_id(), ray.util.get_node_ip_address(), platform.node(), os.getpid())


def process_of(place: Place) -> psutil.Process | None:
    """The process of an agent on this node; None when it has ended."""
    try:
        return psutil.Process(place.pid)
    except psutil.NoSuchProcess:
        return None


def end_process(place: Place) -> None:
    """End the process of an actor on this node that does not answer, and so does not end by itself."""
    if place.node == ray.get_runtime_context().get_node_id() and (process := process_of(place)) is not None:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def end_at_sigterm(_actor: object) -> None:
    """Let SIGTERM end this process at once from now on, as SIGKILL does.

    Ray's own handler closes the process to calls, and waits for the one that runs: an agent would train on
    for hours, hear nothing any more, and not be known to be dead. It is the handler of the C library, since
    Python sets those of the main thread alone, and no call of an actor runs there.
    """
    ctypes.CDLL(None).signal(int(signal.SIGTERM), int(signal.SIG_DFL))


def strategy(bundles: PlacementGroup | None, rank: int) -> PlacementGroupSchedulingStrategy | str:
    """The place of an agent: its bundle of the group, or, without a group, wherever load is least."""
    if bundles is None:
        return "SPREAD"
    return PlacementGroupSchedulingStrategy(bundles, placement_group_bundle_index=rank)


def check_memory(agents: int) -> None:
    """Raise `PlacementError` where this machine's memory cannot hold the processes of that many agents."""
    total = available_memory.total()
    if agents * AGENT_BYTES > total:
        raise PlacementError(
            f"{agents} agents are as many processes of some {AGENT_BYTES >> 20} MiB each, "
            f"{agents * AGENT_BYTES / 2**30:.0f} GiB in all, and this machine has {total / 2**30:.1f} GiB of "
            f"memory: set agents={max(1, total // AGENT_BYTES)} at most, join a cluster of more machines "
            "(--address HOST:PORT), or take d5ray.simulate, which needs no processes"
        )


def reserve(agents: int, cpus: float) -> PlacementGroup | None:
    """Room for all agents at once, or `PlacementError` that says how many the cluster can place."""
    if cpus == 0:
        return None
    per_node = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    places = sum(int(total / cpus + 1e-9) for total in per_node)
    if places < agents:
        raise PlacementError(
            f"the Ray cluster can place {places} agents of {cpus:g} CPU each (its nodes have "
            f"{', '.join(f'{total:g}' for total in per_node)} CPUs), the experiment has {agents}: "
            f"set agents={max(places, 1)}, or a smaller cpus_per_agent, or add nodes"
        )
    bundles = placement_group([{"CPU": cpus}] * agents, strategy="PACK")
    if not bundles.wait(timeout_seconds=PLACEMENT_SECONDS):
        remove_placement_group(bundles)
        free = ray.available_resources().get("CPU", 0.0)
        raise PlacementError(
            f"the Ray cluster made no room for {agents} agents of {cpus:g} CPU each within "
            f"{PLACEMENT_SECONDS:g} s ({free:g} CPUs are free now): wait for other jobs, or set fewer agents"
        )
    return bundles


def without_room(bundles: PlacementGroup | None, rank: int, cpus: float) -> str:
    """Why no node has room for this agent, whose node was lost; empty if one has, or nobody knows yet."""
    if bundles is None:
        return ""
    alive = {node["NodeID"]: node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]}
    where = placement_group_table(bundles).get("bundles_to_node_id", {}).get(rank)
    if where in alive:
        return ""
    sizes = ", ".join(f"{total:g}" for total in alive.values())
    return (
        f"its node is lost, and none of those that are left (with {sizes} CPUs) has {cpus:g} CPU free: add a "
        "node to the cluster"
    )
