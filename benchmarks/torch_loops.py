"""What d5ray is measured against: the training loops that a PyTorch user writes, without d5ray around them.

All loops read the loss at every step, as a d5ray agent does, take every sample of an epoch's order in whole
batches, and note the time at the end of every step; they measure nothing else. `DistributedDataParallel`
keeps its defaults: it sends the first process's buffers (the statistics of batch normalisation) to the
others before every forward pass, where d5ray's agents keep their own and average them for an evaluation.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.samples import Samples
from d5ray.training.samplers.sampler import Sampler

dist: Any = torch.distributed  # its type stubs lack most of it
TIMEOUT = timedelta(seconds=120)
EVALUATION_BATCH = 1024

Prepare = Callable[[nn.Module], nn.Module]


def as_it_is(module: nn.Module) -> nn.Module:
    """For one process alone: its gradients are those of all."""
    return module


@dataclass(frozen=True)
class TorchTask:
    """What a loop trains; the same values as an `Experiment` has. batch_size: samples a process and step.

    device: PyTorch's name of it. A sample may have several labels, such as the tokens that follow.
    """

    model: Any
    dataset: Dataset
    batch_size: int
    learning_rate: float
    momentum: float
    sampler: Sampler
    seed: int
    threads: int
    device: str = "cpu"
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trained:
    """What one process noted.

    marks     the times (ns) at which the first step began and every step ended: (steps + 1,)
    losses    of every step: (steps,)
    accuracy  on the test split, after the last step
    """

    marks: list[int]
    losses: list[float]
    accuracy: float


@final
class HandWrittenLoop:
    """Forward, loss, backward, `torch.optim.SGD`, all with PyTorch's defaults.

    One process, or the one with this rank of `size`, each with its part of the samples; `prepare` then gives
    what takes the module's place, so that the gradients are those of all.
    """

    def __init__(self, task: TorchTask, rank: int = 0, size: int = 1, prepare: Prepare = as_it_is) -> None:
        classes = len(task.dataset.classes)
        self.module = build.module(
            task.model,
            dict(task.model_kwargs),
            task.dataset.sample_shape,
            classes,
            seed=task.seed,
            threads=task.threads,
        ).to(task.device)
        self.prepared = prepare(self.module)
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), lr=task.learning_rate, momentum=task.momentum
        )
        self.batches = _batches(task, rank, size)
        self.test = task.dataset.test

    def train(self, steps: int) -> Trained:
        """Do the steps, then evaluate."""
        module, optimizer = self.prepared, self.optimizer
        marks, losses = [0] * (steps + 1), [0.0] * steps
        marks[0] = perf_counter_ns()
        for step in range(steps):
            inputs, labels = next(self.batches)  # (batch, C, H, W), (batch,)
            optimizer.zero_grad(set_to_none=True)
            loss = cross_entropy(module(inputs).flatten(0, -2), labels.flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses[step] = loss.item()
            marks[step + 1] = perf_counter_ns()
        return Trained(marks, losses, accuracy(self.module, self.test))

    def parameters(self) -> np.ndarray[Any, Any]:
        """A flat copy (n,)."""
        with torch.no_grad():
            flat = torch.cat([tensor.reshape(-1) for tensor in self.module.parameters()])
            return np.array(flat.cpu().numpy())


@final
class DistributedDataParallelLoop:
    """One of `size` processes: the same loop with the module in `DistributedDataParallel` over gloo.

    The first process hosts the store (`host_store`), all join there, and `close` ends the group.
    """

    def __init__(self, task: TorchTask, rank: int, size: int) -> None:
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
        self.loop = HandWrittenLoop(self.task, self.rank, self.size, DistributedDataParallel)

    def train(self, steps: int) -> Trained:
        """Do the steps, then evaluate."""
        return self.loop.train(steps)

    def close(self) -> None:
        """End the process group."""
        dist.destroy_process_group()


def accuracy(module: nn.Module, split: Samples) -> float:
    """The share of the samples that are classified correctly, NaN of none; leaves the module in training."""
    module.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(split), EVALUATION_BATCH):
            inputs = torch.tensor(split.inputs[start : start + EVALUATION_BATCH])  # (batch, C, H, W)
            labels = torch.tensor(split.labels[start : start + EVALUATION_BATCH])  # (batch,)
            right += int((module(inputs).argmax(dim=1) == labels).sum())
    module.train()
    return right / len(split) if len(split) else math.nan


def _batches(task: TorchTask, rank: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """This process's part of every step's samples, epoch after epoch, without end."""
    inputs = torch.tensor(task.dataset.train.inputs)  # (N, C, H, W)
    labels = torch.tensor(task.dataset.train.labels)  # (N,)
    epoch = 0
    while True:
        order = torch.from_numpy(task.sampler.order(len(labels), epoch=epoch, seed=task.seed))
        for chosen in torch.split(order, task.batch_size)[rank::size]:
            yield inputs[chosen].to(task.device), labels[chosen].to(task.device)
        epoch += 1
