"""Agents in processes of their own, one of which kills itself in the midst of a step; and what they train"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, final

import numpy as np

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.checkpoints.rollback import RestartPoint
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.errors import D5Error
from d5ray.frameworks.host import host_view
from d5ray.networks.executors.executor import Allocate, Evaluation, Executor
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.networks.executors.slots import Slot
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment
from tests.agents import Rows

Array = np.ndarray[Any, Any]
FEATURES: Final = 64  # of a digit
SECONDS: Final = 60.0  # for an answer; in a long queue a process may wait for its turn
IMPORTED: Final = (
    "d5ray.distributed.communicators.socket.communicator",
    "d5ray.distributed.communicators.shared_memory.communicator",
)  # takes seconds
DIGITS = d5.datasets.load_dataset("digits")


@final
class Weighted(Executor):
    """½ Σ_k w_k (x_k − s_k)², averaged over the samples s, repeated to the size of x; in NumPy, float64.

    Trained are the n numbers x. The samples' running mean, and how many batches it has seen, are not.
    """

    def __init__(self, elements: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.weights = rng.uniform(0.5, 1.0, elements)
        self.parameters, self.gradients = rng.standard_normal(elements), np.zeros(elements)
        half = elements // 2
        self.slots = (Slot("first", 0, (half,)), Slot("second", half, (elements - half,)))
        self.untrained, self.counters = np.zeros(FEATURES), (np.zeros((), np.int64),)

    def inference(self, inputs: Array) -> Array:
        return inputs

    def inference_and_backprop(self, inputs: Array, labels: Array, on_ready: OnReady | None = None) -> float:
        mean = inputs.reshape(len(inputs), -1).mean(axis=0, dtype=np.float64)
        self.untrained += 0.1 * (mean - self.untrained)
        self.counters[0][...] += 1
        self.gradients[...] = gradient(self.weights, self.parameters, mean)
        if on_ready is not None:
            announcer = self._announcer(on_ready)
            for number in reversed(range(len(self.slots))):
                announcer.arrived(number)
        self.ended = time.perf_counter()
        return float(self.gradients @ self.gradients)

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        return Evaluation(loss=0.0, accuracy=0.0)

    def numpy_parameters(self) -> Array:
        return np.array(self.parameters)

    def named_state(self) -> dict[str, Array]:
        return {}

    def use_buffers(self, allocate: Allocate) -> None:
        for name in ("parameters", "gradients"):
            made = allocate(len(self.weights), "float64")
            made[...] = getattr(self, name)
            setattr(self, name, made)


def gradient(weights: Array, x: Array, mean: Array) -> Array:
    """w ⊙ (x − s) for the samples' mean s, repeated."""
    return np.asarray(weights * (x - np.resize(mean, len(x))))


def weighted(model: object, model_kwargs: dict[str, Any], *, seed: int, **_: object) -> Weighted:
    """What an experiment calls to make the executor."""
    return Weighted(model_kwargs["elements"], seed)


class Death(Event):
    """SIGKILL to the agent's own process in an exchange, which begins when its gradient is there.

    after: of how long the exchange of the step before took, when it dies.
    """

    def __init__(self, agent: int, at_step: int, after: float) -> None:
        self.agent, self.at_step, self.after = agent, at_step, after

    def before_step(self, moment: Moment) -> None:
        if moment.rank == self.agent and moment.step == self.at_step:
            assert isinstance(moment.executor, Weighted)
            threading.Thread(
                target=self._die, args=(moment.executor, time.perf_counter()), daemon=True
            ).start()

    def _die(self, executor: Weighted, now: float) -> None:
        took = now - executor.ended
        while executor.ended < now:
            time.sleep(1e-5)
        time.sleep(self.after * took)
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class State:
    """What an agent has, as copies in host memory."""

    x: Array
    base: dict[str, Any]  # of the base optimizer, by name
    untrained: Array
    batches: int

    def same(self, other: "State") -> bool:
        """Whether all is equal to the last bit."""
        return (
            self.x.tobytes() == other.x.tobytes()
            and self.untrained.tobytes() == other.untrained.tobytes()
            and self.batches == other.batches
            and self.base.keys() == other.base.keys()
            and all(np.array_equal(value, other.base[name]) for name, value in self.base.items())
        )


@dataclass
class Survivor:
    """How it went with an agent that was left."""

    stopped_at: int  # complete steps
    agreed: RestartPoint | str  # str: the error
    before: State  # when the group was formed again
    after: State  # that many steps later
    events: list[dict[str, Any]]


def state_of(agent: TrainingAgent) -> State:
    executor, states = agent.executor, agent.connections.optimizer._states
    base = {
        f"{part} {name}": np.array(value) for part, state in states.items() for name, value in state.items()
    }
    return State(
        executor.numpy_parameters(),
        base,
        host_view(executor.untrained).copy(),
        int(executor.counters[0]),
    )


def live(rank: int, experiment: d5.Experiment, group: Group, more: int, pipe: Connection) -> None:
    """Train until a peer is lost; then form the group that comes by the pipe, and do that many steps more."""
    rows = Rows()
    agent = TrainingAgent(rank, experiment, "run", "node", rows)
    agent.build(DIGITS)
    agent.join(group)
    pipe.send("joined")
    outcome = agent.train(10_000)
    pipe.send(outcome)
    topology = d5.topologies.Complete(group.size - 1)
    try:
        agreed: RestartPoint | str = agent.rejoin(pipe.recv(), topology)
    except D5Error as error:
        pipe.send(str(error))
        return
    before = state_of(agent)
    outcome_after = agent.train(more)
    assert outcome_after.completed, outcome_after
    pipe.send(Survivor(outcome.step, agreed, before, state_of(agent), rows.sent_events))
    pipe.recv()
    agent.leave()


@contextmanager
def processes(count: int, target: Callable[..., None], *arguments: Any) -> Iterator[list[Any]]:
    """That many, forked from one that has imported everything; gives (process, pipe), and ends them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *IMPORTED])
    pipes = [context.Pipe() for _ in range(count)]
    made = [
        context.Process(
            target=target, args=(rank, *(each[rank] for each in arguments), pipes[rank][1]), daemon=True
        )
        for rank in range(count)
    ]
    try:
        for process, (_, theirs) in zip(made, pipes, strict=True):
            process.start()
            theirs.close()
        yield [(process, ours) for process, (ours, _) in zip(made, pipes, strict=True)]
    finally:
        for process, (ours, _) in zip(made, pipes, strict=True):
            if process.is_alive():
                process.kill()
            process.join(10)
            ours.close()


def said(pipe: Connection) -> Any:
    assert pipe.poll(SECONDS), f"nothing was said for {SECONDS:g} s"
    return pipe.recv()


def killed(experiment: d5.Experiment, death: Death, more: int) -> list[Survivor | str]:
    """Train an experiment until the death, then that many steps; how it went with those that are left."""
    count = experiment.agents or 0
    rendezvous = Rendezvous()
    address = rendezvous.address
    groups = [Group("mortal", 0, rank, count, address, timeout_seconds=30.0) for rank in range(count)]
    left = [rank for rank in range(count) if rank != death.agent]
    try:
        with processes(count, live, [experiment] * count, groups, [more] * count) as members:
            pipes = {rank: members[rank][1] for rank in left}
            for pipe in pipes.values():
                assert said(pipe) == "joined"
            for pipe in pipes.values():
                assert said(pipe).status == "peer_lost"
            for index, pipe in enumerate(pipes.values()):
                pipe.send(Group("mortal", 1, index, len(left), address, timeout_seconds=30.0))
            found: list[Survivor | str] = [said(pipe) for pipe in pipes.values()]
            for pipe in pipes.values():
                pipe.send("leave")
            return found
    finally:
        rendezvous.close()
