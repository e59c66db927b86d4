"""Placement of actors: room for all of them at once or an error that says how many fit, and where one runs"""

import ctypes
import os
import platform
import signal
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
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

from d5ray.actors.session import session
from d5ray.actors.session.ray_processes import HEAD_SECONDS
from d5ray.errors import PlacementError, RayLost
from d5ray.experiment import Experiment
from d5ray.networks.device import BestDevice, GPUDevice

GROUPS: Final = Path("/sys/fs/cgroup")
LIMITS: Final = ("memory.max", "memory/memory.limit_in_bytes")  # of a control group
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


def memory_bytes(root: Path = GROUPS) -> int:
    """Bytes that this machine has, or that its container may have. root: where control groups are mounted."""
    limits = [_number(root / limit) for limit in LIMITS]
    machine: int = psutil.virtual_memory().total
    return min([machine, *(limit for limit in limits if limit is not None)])


def _number(file: Path) -> int | None:
    """The number in a file of the kernel; None if there is no file, or it says "max"."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def check_memory(agents: int) -> None:
    """Raise `PlacementError` where this machine's memory cannot hold the processes of that many agents."""
    total = memory_bytes()
    if agents * AGENT_BYTES > total:
        raise PlacementError(
            f"{agents} agents are as many processes of some {AGENT_BYTES >> 20} MiB each, "
            f"{agents * AGENT_BYTES / 2**30:.0f} GiB in all, and this machine has {total / 2**30:.1f} GiB of "
            f"memory: set agents={max(1, total // AGENT_BYTES)} at most, join a cluster of more machines "
            "(--address HOST:PORT), or take d5ray.simulate, which needs no processes"
        )


@dataclass(frozen=True)
class Reservation:
    """The CPUs and GPUs that an actor takes of its node; Ray shows these GPUs to it alone."""

    cpus: float = 0.0
    gpus: float = 0.0

    def __str__(self) -> str:
        return f"{self.cpus:g} CPU" + (f" and {self.gpus:g} GPU" if self.gpus else "")

    @property
    def resources(self) -> dict[str, float]:
        """The amounts that are reserved, by Ray's names."""
        return {name: amount for name, amount in (("CPU", self.cpus), ("GPU", self.gpus)) if amount}

    def places(self, node: Mapping[str, float]) -> int:
        """The number of such actors that a node with these resources has room for."""
        return min(int(node.get(name, 0.0) / amount + 1e-9) for name, amount in self.resources.items())

    def of(self, resources: Iterable[Mapping[str, float]]) -> str:
        """The amounts that nodes have of what is reserved, as text: `2, 4 CPUs`."""
        nodes = list(resources)
        return " and ".join(
            f"{', '.join(f'{node.get(name, 0.0):g}' for node in nodes)} {name}s" for name in self.resources
        )

    def shared(self, nodes: Iterable[Mapping[str, float]], agents: int) -> str:
        """The amounts asked, free and held by others now, as text: `2 CPUs asked, 0 of 4 free, 4 held`."""
        nodes, free = list(nodes), ray.available_resources()
        told = []
        for name, amount in self.resources.items():
            whole, left = sum(node.get(name, 0.0) for node in nodes), free.get(name, 0.0)
            told.append(
                f"{agents * amount:g} {name}s asked, {left:g} of {whole:g} free, {whole - left:g} held"
            )
        return "; ".join(told)


NOTHING: Final = Reservation()


def _nodes() -> list[Mapping[str, float]]:
    """What the nodes of the cluster have, which Ray asks its head for."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def places_of(agents: int, reserved: Reservation) -> int:
    """The number of such agents that the cluster can place; `PlacementError` if that is too few."""
    nodes = session.guarded(_nodes)
    places = sum(map(reserved.places, nodes))
    if places < agents:
        less = " or gpus_per_agent (with 0.5 two share a GPU)" if reserved.gpus else ""
        found = reserved.of(nodes)
        raise PlacementError(
            f"the Ray cluster can place {places} agents of {reserved} each (its nodes have {found}), "
            f"the experiment has {agents}: set agents={max(places, 1)}, or a smaller cpus_per_agent{less}, "
            "or add nodes"
        )
    return places


def reserve(agents: int, reserved: Reservation) -> PlacementGroup | None:
    """Room for all agents at once, or `PlacementError` that says how many the cluster can place."""
    if not reserved.resources:
        return None
    places_of(agents, reserved)
    asked = _Asked([reserved.resources] * agents)
    try:
        if not asked.granted():
            raise PlacementError(
                f"the Ray cluster made no room for {agents} agents of {reserved} each within "
                f"{PLACEMENT_SECONDS:g} s, since other jobs, actors and tasks have it ("
                f"{session.guarded(lambda: reserved.shared(_nodes(), agents))}): end them or wait for them, "
                "set fewer agents or a smaller cpus_per_agent, or add nodes"
            )
    except BaseException:
        asked.withdraw()
        raise
    return asked.bundles


class _Asked:
    """A placement group that Ray may grant when nobody waits for it any more; then it is removed."""

    def __init__(self, bundles: list[dict[str, float]]) -> None:
        self._wanted, self._lock, self._withdrawn = bundles, threading.Lock(), False
        self.bundles: PlacementGroup | None = None

    def granted(self) -> bool:
        """Ask, and wait for `PLACEMENT_SECONDS`; whether all bundles have their places."""
        session.guarded(self._ask)
        bundles = self.bundles
        assert bundles is not None
        # Ray answers all the while that others hold the room.
        return session.guarded(
            lambda: bool(bundles.wait(PLACEMENT_SECONDS)), PLACEMENT_SECONDS + HEAD_SECONDS
        )

    def withdraw(self) -> None:
        """Give back what was granted, or is going to be."""
        with self._lock:
            self._withdrawn, bundles = True, self.bundles
        if bundles is not None:
            with suppress(RayLost):
                session.guarded(lambda: remove_placement_group(bundles))

    def _ask(self) -> None:
        made = placement_group(self._wanted, strategy="PACK")
        with self._lock:
            self.bundles, late = made, self._withdrawn
        if late:
            remove_placement_group(made)


def without_room(bundles: PlacementGroup | None, rank: int, reserved: Reservation) -> str:
    """Why no node has room for this agent, whose node was lost; empty if one has, or nobody knows yet."""
    if bundles is None:
        return ""
    alive = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
    where = placement_group_table(bundles).get("bundles_to_node_id", {}).get(rank)
    if where in alive:
        return ""
    found = reserved.of(alive.values())
    return (
        f"its node is lost, and none of those that are left (with {found}) has {reserved} "
        "free: add a node to the cluster"
    )


def reservation_of(experiment: Experiment) -> Reservation:
    """The reservation of an agent: a GPU of its own where it computes on one, unless it says how many.

    A GPU that was chosen by its number is the caller's choice, and seen by that number beside all others.
    """
    gpus, device = experiment.gpus_per_agent, experiment.device
    if gpus is None:
        there = any(node["Resources"].get("GPU") for node in ray.nodes() if node["Alive"])
        gpus = float(device == GPUDevice() or (isinstance(device, BestDevice) and there))
    return Reservation(experiment.cpus_per_agent, gpus)


def share_gpu(_actor: object) -> None:
    """Let NCCL have several ranks on the GPU of this process; it does from 2.30 on."""
    os.environ.setdefault("NCCL_MULTI_RANK_GPU_ENABLE", "1")
