"""Plain PyTorch as the oracle: a training loop, and what DistributedDataParallel does of several replicas

What an experiment's agents drew is taken here again, batch by batch: samplers and shards do not matter.
"""

import copy
import functools
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

import d5ray as d5
from d5ray.datasets import Split
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment
from tests.agents import agents_in_threads
from tests.together import together

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]
Act = Callable[[nn.Module, int], None]  # what the user does to a module after so many steps
CLASSES = 3
_seen: dict[int, dict[tuple[int, int], tuple[Any, Array]]] = {}  # by experiment: batches by rank and step


class TwoLayers(nn.Module):
    """(batch, 4) to three scores; what a subclass prepares, and does between the layers, is its own."""

    sizes = (4, 6)  # of the first layer

    def __init__(self) -> None:
        super().__init__()
        self.back, self.head = nn.Linear(*self.sizes), nn.Linear(self.sizes[1], CLASSES)
        self.prepare()

    def prepare(self) -> None: ...

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.tanh(hidden)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.between(self.back(inputs)))
        return scores


def samples(count: int = 24, shape: tuple[int, ...] = (4,), *, seed: int = 0, tokens: int = 0) -> d5.Dataset:
    """A small data set, of numbers or of that many tokens."""
    rng = np.random.default_rng(seed)

    def split(size: int) -> Split:
        inputs: Array = rng.standard_normal((size, *shape)).astype(np.float32)
        if tokens:
            inputs = rng.integers(tokens, size=(size, *shape))
        return Split(inputs, rng.integers(CLASSES, size=size))

    return d5.Dataset("small", split(count), split(6), tuple(map(str, range(CLASSES))))


class Watching(Event):
    """Keeps the batches, and does to the module what the user does after a step."""

    def __init__(self, key: int, act: Act | None) -> None:
        self.key, self.act = key, act

    def after_sampling(self, moment: Moment) -> None:
        assert moment.batch is not None
        taken = copy.deepcopy((moment.batch.inputs, moment.batch.labels))
        _seen[self.key][moment.rank, moment.step] = taken

    def after_step(self, moment: Moment) -> None:
        if self.act is not None:
            self.act(module_of(moment.executor), moment.step)


def module_of(executor: Any) -> nn.Module:
    """The module that an executor computes."""
    while not hasattr(executor, "module"):
        executor = executor.inner
    module: nn.Module = executor.module
    return module


def trained(
    module: Any,
    optimizer: Any,
    data: d5.Dataset | None = None,
    *,
    agents: int = 1,
    steps: int = 6,
    act: Act | None = None,
    real: bool = False,
    **options: Any,
) -> tuple[Tensors, dict[tuple[int, int], tuple[Any, Array]], list[Tensors]]:
    """What agents train: all tensors of the first one's module, their batches, and everyone's parameters."""
    data = data or samples()
    key = len(_seen)
    _seen[key] = {}
    experiment = d5.Experiment.from_values(
        **{
            "model": module, "dataset": data, "optimizer": optimizer, "agents": agents, "batch_size": 4,
            "epochs": 100, "monitor_seconds": 0, "seed": 5, "evaluate": False,
            "events": (Watching(key, act),),
        } | options
    )  # fmt: skip
    with (agents_of_threads if real else agents_of_simulation)(experiment, data, steps) as members:
        tensors = {
            name: each.detach().cpu().numpy().copy()
            for name, each in module_of(members[0].executor).state_dict().items()
            if isinstance(each, torch.Tensor)
        }
        return tensors, _seen[key], [agent.parameters() for agent in members]


@contextmanager
def agents_of_simulation(experiment: d5.Experiment, data: d5.Dataset, steps: int) -> Any:
    with d5.simulate(experiment) as group:
        group.train(steps=steps, progress=False)
        yield group.agents


@contextmanager
def agents_of_threads(experiment: d5.Experiment, data: d5.Dataset, steps: int) -> Any:
    with agents_in_threads(experiment, data) as (group, _):
        outcomes = together(lambda rank: group[rank].train(steps), len(group))
        assert all(each.completed for each in outcomes), outcomes
        yield group


def plain(
    module: Any,
    optimizer: Callable[[Any], torch.optim.Optimizer],
    batches: dict[tuple[int, int], tuple[Any, Array]],
    *,
    loss: Callable[..., torch.Tensor] = nn.functional.cross_entropy,
    act: Act | None = None,
    seed: int = 5,
    every_parameter: bool = False,
    pieces: int = 1,
) -> Tensors:
    """The tensors of rank 0's replica after the same batches by plain PyTorch.

    Each replica has the state of the first, as DDP begins; gradients are averaged where any replica has one;
    buffers are the first one's before every pass. every_parameter: the optimizer is made anew of all
    parameters of the module at every step, in which a rule without a state sees what was put in their place.
    """
    ranks = 1 + max(rank for rank, _ in batches)
    steps = 1 + max(step for _, step in batches)
    replicas = []
    for _ in range(ranks):
        torch.manual_seed(seed)
        made = copy.deepcopy(module) if isinstance(module, nn.Module) else module()
        replicas.append(made.train() if not made.training else made)
    for other in replicas[1:]:
        other.load_state_dict(replicas[0].state_dict())
    rules = [optimizer(each.parameters()) for each in replicas]
    for step in range(steps):
        for replica in replicas[1:]:
            with torch.no_grad():
                for mine, first in zip(replica.buffers(), replicas[0].buffers(), strict=True):
                    mine.copy_(first)
        for rank, replica in enumerate(replicas):
            replica.zero_grad()
            inputs, labels = batches[rank, step]
            given = zip(*(torch.from_numpy(each).chunk(pieces) for each in (inputs, labels)), strict=True)
            for piece, truth in given:
                torch.autograd.backward(loss(replica(piece), truth) / pieces)
        for same in zip(*(each.parameters() for each in replicas), strict=True):
            found = [each.grad for each in same if each.grad is not None]
            mean = None if not found else sum(each.to_dense() for each in found) / ranks
            for each in same:
                each.grad = None if mean is None else mean.clone()
        for replica, rule in zip(replicas, rules, strict=True):
            (optimizer(replica.parameters()) if every_parameter else rule).step()
            if act is not None:
                act(replica, step + 1)
    return {name: each.detach().numpy().copy() for name, each in replicas[0].state_dict().items()}


def check_same(found: Tensors, expected: Tensors, tolerance: float = 2e-5) -> None:
    """Equal names; integers equal, all others nearly so."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


RULES: dict[str, tuple[Any, Callable[[Any], torch.optim.Optimizer]]] = {
    "SGD": (d5.optimizers.SGD(0.2), functools.partial(torch.optim.SGD, lr=0.2)),
    "momentum": (
        d5.optimizers.Momentum(0.1, 0.9), functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
    ),
    "decay": (
        d5.optimizers.WeightDecay(d5.optimizers.Momentum(0.1, 0.9), 0.1),
        functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1),
    ),
    "AdamW": (
        d5.optimizers.AdamW(0.05, weight_decay=0.3),
        functools.partial(torch.optim.AdamW, lr=0.05, weight_decay=0.3),
    ),
    "torch AdamW": (
        functools.partial(torch.optim.AdamW, lr=0.05, weight_decay=0.3),
        functools.partial(torch.optim.AdamW, lr=0.05, weight_decay=0.3),
    ),
    "Muon of its own": (
        d5.optimizers.TorchOptimizer("Adafactor", lr=0.05, weight_decay=0.3),
        functools.partial(torch.optim.Adafactor, lr=0.05, weight_decay=0.3),
    ),
}  # fmt: skip
