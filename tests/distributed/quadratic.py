"""Quadratics that differ from agent to agent, executed in plain NumPy, and agents that train on them"""

import copy
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.topology import Topology
from d5ray.frameworks.host import host_view
from d5ray.networks.executors.executor import Allocate, Evaluation, Executor
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.training.batches.batch import Batch
from d5ray.training.optimizers.optimizer import Optimizer
from tests.distributed.communicators.reference import Reference
from tests.together import T, together

Array = np.ndarray[Any, Any]
Framework = Callable[[Array], Any]
SIZE = 6  # parameters, in three tensors
SLOTS = (Slot("a", 0, (2,)), Slot("b", 2, (1, 3)), Slot("c", 5, (1,)))
_numbers = itertools.count()


@dataclass(frozen=True)
class Quadratics:
    """F_i(x) = ½ (x − c_i)ᵀ A_i (x − c_i), and where the agents start; a sample s adds sᵀx."""

    curvatures: Array  # A (agents, SIZE, SIZE), symmetric
    centres: Array  # c (agents, SIZE)
    start: Array  # (agents, SIZE)

    @property
    def agents(self) -> int:
        return len(self.centres)

    def only(self, rank: int) -> "Quadratics":
        """One agent's."""
        own = slice(rank, rank + 1)
        return Quadratics(self.curvatures[own], self.centres[own], self.start[own])

    @property
    def minimum(self) -> Array:
        """Of the sum of all F_i (SIZE,)."""
        weighted = np.einsum("nij,nj->i", self.curvatures, self.centres)
        return np.asarray(np.linalg.solve(self.curvatures.sum(axis=0), weighted))

    def gradients(self, x: Array) -> Array:
        """A_i (x_i − c_i) for all agents' x (agents, SIZE)."""
        return np.asarray(np.einsum("nij,nj->ni", self.curvatures, x - self.centres))


def quadratics(
    agents: int, seed: int = 7, *, same_start: bool = False, same_data: bool = False
) -> Quadratics:
    """Eigenvalues between 0.2 and 2; minima, axes and starts differ, unless said otherwise."""
    rng = np.random.default_rng([seed, agents])
    axes = np.linalg.qr(rng.standard_normal((agents, SIZE, SIZE)))[0]
    curvatures = axes * rng.uniform(0.2, 2.0, (agents, 1, SIZE)) @ axes.transpose(0, 2, 1)
    centres, start = rng.standard_normal((2, agents, SIZE))
    if same_start:
        start[:] = start[0]
    if same_data:
        curvatures[:], centres[:] = curvatures[0], centres[0]
    return Quadratics(curvatures, centres, start)


def noise(agents: int, steps: int, samples: int = 3, seed: int = 11) -> Array:
    """Samples (steps, agents, samples, SIZE) of mean zero."""
    return np.random.default_rng([seed, agents]).standard_normal((steps, agents, samples, SIZE))


@final
class QuadraticExecutor(Executor):
    """One agent's quadratic. The gradient is A (x − c) plus the mean of the samples (batch, SIZE).

    The flat arrays are what `array` makes of NumPy's, such as torch.from_numpy; it shares the memory.
    """

    slots = SLOTS

    def __init__(self, curvature: Array, centre: Array, start: Array, array: Framework = np.asarray) -> None:
        self.curvature, self.centre = curvature, centre
        self._x, self._gradient = start.copy(), np.zeros(SIZE)
        self.parameters, self.gradients = array(self._x), array(self._gradient)
        self.buffers = array(np.zeros(2))
        self.counters = (array(np.zeros((), np.int64)),)

    def inference(self, inputs: Array) -> Array:
        return np.asarray(inputs @ self._x)

    def inference_and_backprop(self, inputs: Array, labels: Array, on_ready: OnReady | None = None) -> float:
        away = self._x - self.centre
        shift = inputs.mean(axis=0)
        gradient = self.curvature @ away + shift
        self._gradient[...] = np.nan  # what is not written is seen
        announcer = self._announcer(on_ready) if on_ready else None
        for number in reversed(range(len(SLOTS))):
            slot = SLOTS[number]
            piece = slice(slot.offset, slot.offset + slot.size)
            self._gradient[piece] = gradient[piece]
            if announcer:
                announcer.arrived(number)
        return float(away @ self.curvature @ away / 2 + shift @ self._x)

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        return Evaluation(loss=float(self.inference(inputs).mean()), accuracy=0.0)

    def numpy_parameters(self) -> Array:
        return self._x.copy()

    def named_state(self) -> dict[str, Array]:
        return {"buffers": host_view(self.buffers).copy(), "count": host_view(self.counters[0]).copy()}

    def use_buffers(self, allocate: Allocate) -> None:
        raise NotImplementedError


def batch_of(samples: Array, step: int = 0, weight: float = 1.0) -> Batch:
    """Samples (batch, SIZE) as one agent's share of a step."""
    return Batch(samples, np.zeros(len(samples), np.int64), weight, step, epoch=0, ends_epoch=False)


def batches_of(samples: Array) -> list[list[Batch]]:
    """Samples (steps, agents, batch, SIZE) as the agents' batches, step by step."""
    return [[batch_of(own, step) for own in shares] for step, shares in enumerate(samples)]


def zeros(agents: int, steps: int) -> Array:
    """Samples (steps, agents, 1, SIZE) that leave the gradient as it is: no noise."""
    return np.zeros((steps, agents, 1, SIZE))


def form(topology: Topology) -> list[Communicator]:
    """A new group over the reference backend, by rank."""
    name = f"quadratic-{next(_numbers)}"

    def join(rank: int) -> Communicator:
        return Reference(Group(name, 0, rank, topology.agents, timeout_seconds=30.0), topology)

    return together(join, topology.agents)


def train(
    rule: DistributedOptimizer,
    base: Optimizer,
    topology: Topology,
    problem: Quadratics,
    batches: Sequence[Sequence[Batch]],
    watch: Callable[[Any], T],
    array: Framework = np.asarray,
    form: Callable[[Topology], list[Communicator]] = form,
) -> list[list[T]]:
    """Train a new group of agents; what `watch(optimizer)` gave each, at the start and after each step."""
    group = form(topology)

    def agent(rank: int) -> list[T]:
        optimizer = copy.copy(rule)
        optimizer.bind(
            executor=QuadraticExecutor(
                problem.curvatures[rank], problem.centres[rank], problem.start[rank], array
            ),
            base=base,
            communication=group[rank],
            rng=np.random.default_rng([5, rank]),
            shared_rng=np.random.default_rng(5),
        )
        seen = [watch(optimizer)]
        for step in batches:
            optimizer.step(step[rank])
            seen.append(watch(optimizer))
        return seen

    try:
        return together(agent, topology.agents)
    finally:
        for member in group:
            member.close()


def course(
    rule: DistributedOptimizer,
    base: Optimizer,
    topology: Topology,
    problem: Quadratics,
    batches: Sequence[Sequence[Batch]],
    watch: Callable[[Any], Array] = lambda optimizer: host_view(optimizer.x).copy(),
    array: Framework = np.asarray,
    form: Callable[[Topology], list[Communicator]] = form,
) -> Array:
    """(steps + 1, agents, …): the parameters, or what is watched, at the start and after every step."""
    return np.array(train(rule, base, topology, problem, batches, watch, array, form)).swapaxes(0, 1)
