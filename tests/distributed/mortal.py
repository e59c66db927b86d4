"""What agents train that others join, leave or kill, what they have then, and processes of their own"""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, final

import numpy as np

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.frameworks.host import host_view
from d5ray.networks.executors.executor import Allocate, Evaluation, Executor
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.networks.executors.gradient_buckets import OnReady

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
        self.buffers, self.counters = np.zeros(FEATURES), (np.zeros((), np.int64),)

    def inference(self, inputs: Array) -> Array:
        return inputs

    def inference_and_backprop(self, inputs: Array, labels: Array, on_ready: OnReady | None = None) -> float:
        mean = inputs.reshape(len(inputs), -1).mean(axis=0, dtype=np.float64)
        self.buffers += 0.1 * (mean - self.buffers)
        self.counters[0][...] += 1
        self.gradients[...] = gradient(self.weights, self.parameters, mean)
        if on_ready is not None:
            announcer = self._announcer(on_ready)
            for number in reversed(range(len(self.slots))):
                announcer.arrived(number)
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


@dataclass
class State:
    """What an agent has, as copies in host memory."""

    x: Array
    base: dict[str, Any]  # of the base optimizer, by name
    buffers: Array
    batches: int

    def same(self, other: "State") -> bool:
        """Whether all is equal to the last bit."""
        return (
            self.x.tobytes() == other.x.tobytes()
            and self.buffers.tobytes() == other.buffers.tobytes()
            and self.batches == other.batches
            and self.base.keys() == other.base.keys()
            and all(np.array_equal(value, other.base[name]) for name, value in self.base.items())
        )


def state_of(agent: TrainingAgent) -> State:
    executor, states = agent.executor, agent.connections.optimizer._states
    base = {
        f"{part} {name}": np.array(value) for part, state in states.items() for name, value in state.items()
    }
    return State(
        executor.numpy_parameters(),
        base,
        host_view(executor.buffers).copy(),
        int(executor.counters[0]),
    )


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
