"""Contenders that reduce arrays: groups of d5ray, of torch.distributed and of OpenMPI, on one machine"""

import importlib.util
import shutil
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, final

from benchmarks.allreduce_speed.job import GROUP_SECONDS, AllreduceTimes
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.kits.laboratory.comparisons import processes
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.jobs import worlds
from d5ray.kits.laboratory.jobs.worlds import WAIT_SECONDS, MPIWorld

OVER_TCP = ("--mca", "btl", "tcp,self")  # of OpenMPI
HASHED_AS = "d5ray.recipes.reducers"  # where the first runs knew it


@final
@dataclass(frozen=True)
class ThroughD5ray(Contender[AllreduceTimes]):
    """A communicator of d5ray, on arrays from its `allocate`, as training has them."""

    backend: str
    processes: int

    @property
    def name(self) -> str:
        return f"d5ray {self.backend}[{self.processes}]"

    def measure(self, job: AllreduceTimes, folder: Path) -> list[RankSeries]:
        with closing(Rendezvous()) as rendezvous:
            world = partial(worlds.join, self.backend, size=self.processes, store=rendezvous.address)
            work = job.work(world, self.processes)
            return job.series(processes.measured(work, folder, self.processes, GROUP_SECONDS))


@final
@dataclass(frozen=True)
class ThroughTorch(Contender[AllreduceTimes]):
    """`ProcessGroupGloo.allreduce` of torch.distributed, called directly."""

    processes: int
    is_peer: ClassVar[bool] = True
    word = "torch gloo"

    def measure(self, job: AllreduceTimes, folder: Path) -> list[RankSeries]:
        from benchmarks.allreduce_speed.torch_group import TorchWorld  # noqa: PLC0415 - imports torch

        world = partial(TorchWorld, size=self.processes, file=folder / "store", timeout_seconds=WAIT_SECONDS)
        work = job.work(world, self.processes)
        return job.series(processes.measured(work, folder, self.processes, GROUP_SECONDS))


@final
@dataclass(frozen=True)
class ThroughMPI(Contender[AllreduceTimes]):
    """OpenMPI's `Allreduce` in place, through mpi4py, with the defaults of `mpirun`, or over TCP alone."""

    processes: int
    tcp: bool = False
    is_peer: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"openmpi{' tcp' * self.tcp}[{self.processes}]"

    def missing(self) -> str:
        if shutil.which("mpirun") is None:
            return "there is no mpirun: install OpenMPI (apt-get install openmpi-bin libopenmpi-dev)"
        if importlib.util.find_spec("mpi4py") is None:
            return "mpi4py is not installed: pip install 'd5ray[mpi]'"
        return ""

    def measure(self, job: AllreduceTimes, folder: Path) -> list[RankSeries]:
        work = job.work(MPIWorld, self.processes)
        start = partial(processes.by_mpirun, options=OVER_TCP if self.tcp else ())
        found = processes.measured(work, folder, self.processes, GROUP_SECONDS, start)
        return job.series(found)
