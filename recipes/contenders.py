"""The contenders of the overhead job: each starts fresh processes, trains, gives its times, and ends them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import pyarrow.compute as pc

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.actors.launch import SETUP_SECONDS, launch, spawned
from d5ray.experiment import Experiment
from d5ray.frameworks.torch.peers import DistributedDataParallelLoop, HandWrittenLoop, Task

TRAINING_SECONDS = 3600.0  # for a loop in plain PyTorch, which shows no sign of life while it runs

Times = dict[tuple[str, int], Sequence[float]]  # (metric, rank) -> seconds of every step, warm-up included


class Contender(ABC):
    """One way to do the work."""

    name: str

    @abstractmethod
    def measure(self) -> Times:
        """Do all the steps in processes that nothing else ran in before, and that end with this call."""


@final
@dataclass(frozen=True)
class Agents(Contender):
    """d5ray's agents, launched and recorded as every experiment is."""

    name: str
    experiment: Experiment
    steps: int
    root: Path  # where the launched runs are kept

    def measure(self) -> Times:
        with launch(self.experiment, quiet=True, root=self.root) as group:
            group.train(self.steps, progress=False)
            samples = group.metrics()
        timed = samples.filter(pc.equal(samples["unit"], "s")).sort_by("seq")
        columns = (timed[name].to_pylist() for name in ("metric", "rank", "value"))
        times: dict[tuple[str, int], list[float]] = {}
        for metric, rank, seconds in zip(*columns, strict=True):
            times.setdefault((metric, rank), []).append(seconds)
        return dict(times)


@final
@dataclass(frozen=True)
class HandWritten(Contender):
    """A loop in plain PyTorch."""

    name: str
    task: Task
    steps: int

    def measure(self) -> Times:
        with spawned(HandWrittenLoop, [(self.task,)]) as loops:
            get([loops[0].parameters.remote()], SETUP_SECONDS, "build the model")
            training = loops[0].train.remote(self.steps)
            return _step_times(get([training], TRAINING_SECONDS, "train"))


@final
@dataclass(frozen=True)
class DataParallel(Contender):
    """`size` processes of PyTorch's own `DistributedDataParallel`."""

    name: str
    task: Task
    size: int
    steps: int

    def measure(self) -> Times:
        members = [(self.task, rank, self.size) for rank in range(self.size)]
        with spawned(DistributedDataParallelLoop, members) as loops:
            port = get([loops[0].host_store.remote()], SETUP_SECONDS, "open the store")[0]
            get([loop.join.remote(port) for loop in loops], SETUP_SECONDS, "join the group")
            training = [loop.train.remote(self.steps) for loop in loops]
            times = _step_times(get(training, TRAINING_SECONDS, "train"))
            get([loop.close.remote() for loop in loops], CALL_SECONDS, "leave the group")
            return times


def _step_times(marks: list[list[int]]) -> Times:
    """From the times (ns) at which steps ended, for each rank, to the seconds that they took."""
    return {("step_time", rank): (np.diff(ends) * 1e-9).tolist() for rank, ends in enumerate(marks)}
