"""What d5ray is measured against: the training loops that a PyTorch user writes, without d5ray around them.

Both loops read the loss at every step, as a d5ray agent does, take every sample of an epoch's order in
whole batches, and note the time at the end of every step; they measure nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter_ns
from typing import Any, final

import numpy as np
import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from d5ray.frameworks.torch import build
from d5ray.training.datasets import Dataset
from d5ray.training.samplers import Sampler

dist: Any = torch.distributed  # its type stubs lack most of it
TIMEOUT = timedelta(seconds=120)


@dataclass(frozen=True)
class Task:
    """What a loop trains; the same values as an `Experiment` has. batch_size: samples a process and step."""

    model: Any
    dataset: Dataset
    batch_size: int
    learning_rate: float
    momentum: float
    sampler: Sampler
    seed: int
    threads: int


@final
class HandWrittenLoop:
    """One process: forward, loss, backward, `torch.optim.SGD`, all with PyTorch's defaults."""

    def __init__(self, task: Task) -> None:
        self.module = _module(task)
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), lr=task.learning_rate, momentum=task.momentum
        )
        self.batches = _batches(task, rank=0, size=1)

    def train(self, steps: int) -> list[int]:
        """The times (ns) at which the first step began and every step ended: (steps + 1,)."""
        return _train(self.module, self.optimizer, self.batches, steps)

    def parameters(self) -> np.ndarray[Any, Any]:
        """A flat copy (n,)."""
        return _flat(self.module)


@final
class DistributedDataParallelLoop:
    """One of `size` processes: the same loop with the module in `DistributedDataParallel` over gloo.

    The first process hosts the store (`host_store`), all join there, and `close` ends the group.
    """

    def __init__(self, task: Task, rank: int, size: int) -> None:
        self.task = task
        self.rank = rank
        self.size = size
        self.store: Any = None

    def host_store(self) -> int:
        """Open the store at which the processes meet, on a free port of this machine; returns the port."""
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=TIMEOUT)
        return int(self.store.port)

    def join(self, port: int) -> None:
        """Join the process group and wrap the module: gloo, PyTorch's default bucket size."""
        store = self.store or dist.TCPStore("127.0.0.1", port, is_master=False, timeout=TIMEOUT)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.size, timeout=TIMEOUT)
        self.module = DistributedDataParallel(_module(self.task))
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), lr=self.task.learning_rate, momentum=self.task.momentum
        )
        self.batches = _batches(self.task, self.rank, self.size)

    def train(self, steps: int) -> list[int]:
        """The times (ns) at which the first step began and every step ended: (steps + 1,)."""
        return _train(self.module, self.optimizer, self.batches, steps)

    def parameters(self) -> np.ndarray[Any, Any]:
        """A flat copy (n,)."""
        return _flat(self.module)

    def close(self) -> None:
        """End the process group."""
        dist.destroy_process_group()


def _module(task: Task) -> nn.Module:
    classes = len(task.dataset.classes)
    return build.module(
        task.model, {}, task.dataset.sample_shape, classes, seed=task.seed, threads=task.threads
    )


def _train(
    module: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterator[tuple[Tensor, Tensor]], steps: int
) -> list[int]:
    times = [0] * (steps + 1)
    losses = [0.0] * steps
    times[0] = perf_counter_ns()
    for step in range(steps):
        inputs, labels = next(batches)  # (batch, C, H, W), (batch,)
        optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(module(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses[step] = loss.item()
        times[step + 1] = perf_counter_ns()
    return times


def _batches(task: Task, rank: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """This process's part of every step's samples, epoch after epoch, without end."""
    inputs = torch.tensor(task.dataset.train.inputs)  # (N, C, H, W)
    labels = torch.tensor(task.dataset.train.labels)  # (N,)
    epoch = 0
    while True:
        order = torch.from_numpy(task.sampler.order(len(labels), epoch=epoch, seed=task.seed))
        for chosen in torch.split(order, task.batch_size)[rank::size]:
            yield inputs[chosen], labels[chosen]
        epoch += 1


def _flat(module: nn.Module) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        return np.array(torch.cat([tensor.reshape(-1) for tensor in module.parameters()]).numpy())
