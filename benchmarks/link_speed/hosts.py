"""Contenders that reduce arrays on hosts of their own: network namespaces whose links have a limited rate"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, final

from benchmarks.allreduce_speed.job import GROUP_SECONDS, AllreduceTimes
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.jobs import slow_network
from d5ray.kits.laboratory.jobs.averaging import Averaging
from d5ray.kits.laboratory.jobs.slow_network import Host
from d5ray.kits.laboratory.jobs.worlds import WAIT_SECONDS, D5rayWorld, ReducingGroup


@dataclass(frozen=True)
class OnHosts(Contender[AllreduceTimes]):
    """A group whose members run on a host each. gigabits: of every link, in 10⁹ bit/s."""

    processes: int
    gigabits: float

    WORD: ClassVar[str]

    @property
    def name(self) -> str:
        return f"{self.WORD} at {self.gigabits:g} Gbit/s[{self.processes}]"

    def missing(self) -> str:
        return slow_network.missing()

    def world(self, hosts: tuple[Host, ...], folder: Path) -> Callable[[int], ReducingGroup]:
        """Joins the group, by rank."""
        raise NotImplementedError

    def measure(self, job: AllreduceTimes, folder: Path) -> list[RankSeries]:
        with slow_network.limited(self.processes, 1000 * self.gigabits) as hosts:
            work = job.work(self.world(tuple(hosts), folder), self.processes)
            return job.series(slow_network.measured(work, folder, hosts, GROUP_SECONDS))


@final
@dataclass(frozen=True)
class OverSockets(OnHosts):
    """d5ray's socket communicator, plain after the proof at connect."""

    WORD: ClassVar[str] = "d5ray socket"

    def world(self, hosts: tuple[Host, ...], folder: Path) -> Callable[[int], ReducingGroup]:
        return partial(_joined, hosts, folder, False)


@final
@dataclass(frozen=True)
class UnderTLS(OnHosts):
    """d5ray's socket communicator as it is between hosts."""

    WORD: ClassVar[str] = "d5ray TLS"

    def world(self, hosts: tuple[Host, ...], folder: Path) -> Callable[[int], ReducingGroup]:
        return partial(_joined, hosts, folder, True)


@final
@dataclass(frozen=True)
class Gloo(OnHosts):
    """`ProcessGroupGloo.allreduce` of torch.distributed, called directly."""

    WORD: ClassVar[str] = "torch gloo"
    is_peer: ClassVar[bool] = True

    def world(self, hosts: tuple[Host, ...], folder: Path) -> Callable[[int], ReducingGroup]:
        return partial(_joined_gloo, len(hosts), folder / "gloo")


def _joined(hosts: tuple[Host, ...], folder: Path, encrypted: bool, rank: int) -> ReducingGroup:
    return D5rayWorld(Averaging(None, hosts, folder, {}, 0.0, 0, encrypted).join(rank))


def _joined_gloo(size: int, file: Path, rank: int) -> ReducingGroup:
    from benchmarks.allreduce_speed.torch_group import TorchWorld  # noqa: PLC0415 - imports torch

    os.environ["GLOO_SOCKET_IFNAME"] = slow_network.DEVICE
    return TorchWorld(rank, size, file, WAIT_SECONDS)
