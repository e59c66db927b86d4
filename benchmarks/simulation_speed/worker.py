"""What a process does that times a simulation: all of it, or in turn with its gradients by themselves"""

import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks.interleaved_timing import interleaved, timer
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.comparisons.timing import Times
from d5ray.kits.laboratory.metrics.simulations import BARE, SIMULATED
from d5ray.networks.executors.delayed import DelayedExecutor
from d5ray.networks.executors.executor import Executor
from d5ray.simulated.group import SimulatedGroup
from d5ray.simulator import simulate

Array = np.ndarray[Any, Any]
RSS_BYTES = 1 if sys.platform == "darwin" else 1024  # the unit of the system's peak memory


def beside_gradients(
    experiment: Experiment, steps: int, seconds: float, folder: Path, _: int = 0
) -> dict[str, Times]:
    """The work of the one process: `steps` of the simulation, the same gradients without it, and so on."""
    with simulate(experiment, root=folder) as group:
        batches = batches_of(group)

        def bare(loops: int) -> float:
            due = [next(batches) for _ in range(loops * steps * len(group.agents))]
            begin = perf_counter()
            for executor, inputs, labels in due:
                executor.inference_and_backprop(inputs, labels)
            return (perf_counter() - begin) / loops

        simulated = timer(lambda: group.train(steps, progress=False))
        return interleaved({SIMULATED: simulated, BARE: bare}, seconds)


def batches_of(group: SimulatedGroup) -> Iterator[tuple[Executor, Array, Array]]:
    """The agents' own executors with the batches of the training, step by step, rank by rank."""
    executors = [inner_of(agent.executor) for agent in group.agents]
    draws = [agent.data.shards.draws(agent.rank) for agent in group.agents]
    split = group.agents[0].data.dataset.train
    while True:
        for executor, own in zip(executors, draws, strict=True):
            indices = next(own).indices
            yield executor, split.inputs[indices], split.labels[indices]


def whole_simulation(
    experiment: Experiment, steps: int, folder: Path, _: int = 0
) -> tuple[float, float, float]:
    """The work of the one process: a simulation; what it took."""
    wall, processor = perf_counter(), process_time()
    with simulate(experiment, root=folder) as group:
        group.train(steps, progress=False)
    return perf_counter() - wall, process_time() - processor, peak_memory()


def peak_memory() -> float:
    """The most bytes that this process had in memory.

    What `getrusage` says may be the peak of the process that started this one, so Linux is asked itself.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return float(lines["VmHWM"].removesuffix("kB")) * 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_BYTES)


def inner_of(executor: Executor) -> Executor:
    """The executor that computes, within the one that lets virtual time pass."""
    assert isinstance(executor, DelayedExecutor)
    return executor._inner
