"""Agents that push and pull and do nothing else: to d5ray's servers, and to two that Ray users write

All begin with x = 0. The agent with rank r pushes a gradient of r + 1 everywhere, so that at the end
x = −η Σ_r (r + 1) n_r for n_r pushes of each agent, exactly; and every pull ends in memory that the agent may
write to, where a model would have its parameters.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple, final

import numpy as np
import ray

from d5ray.actors.calls import CALL_SECONDS, get
from d5ray.distributed.parameter_server.remote_client import RemoteServer
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import AgentError

Array = np.ndarray[Any, np.dtype[np.float32]]
LEARNING_RATE = 2.0**-10  # sums of its multiples are exact
FEWEST = 3  # updates that are timed
UPDATE_SECONDS = 60.0  # for one push and pull


class Pushed(NamedTuple):
    """How many updates an agent made, and in how many seconds."""

    updates: int
    seconds: float


def pushed(update: Callable[[], object], seconds: float) -> Pushed:
    """What an agent does that pushes and pulls by this function for so long."""
    count, begin = 0, perf_counter()
    while count < FEWEST or perf_counter() - begin < seconds:
        update()
        count += 1
    return Pushed(count, perf_counter() - begin)


def begun(elements: int, value: float) -> Array:
    """An array (elements,) whose memory is there."""
    return np.full(elements, value, np.float32)


# -- d5ray -------------------------------------------------------------------------------------------------


@final
class Pusher:
    """An agent of d5ray's `ParameterServer`, as a training has it: its arrays come from `allocate`."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def join(self, addresses: list[Address], node: str, secret: Secret, elements: int) -> None:
        """Connect to the shards, and bring them the first parameters."""
        self.server = RemoteServer(
            addresses, rank=self.rank, elements=elements, dtype="float32", node=node, secret=secret,
            seconds=UPDATE_SECONDS,
        )  # fmt: skip
        self.x = self.server.allocate(elements, "float32")
        self.gradient = self.server.allocate(elements, "float32")
        self.gradient[:] = self.rank + 1
        self.server.begin(self.x)

    def update(self, seconds: float) -> Pushed:
        """Push and pull for so long."""
        return pushed(lambda: self.server.push_pull(self.gradient, into=self.x), seconds)

    def leave(self) -> tuple[float, float]:
        """The smallest and the largest of the parameters, as they are in the end."""
        self.server.pull(into=self.x)
        self.server.close()
        return float(self.x.min()), float(self.x.max())


# -- the example of Ray's documentation --------------------------------------------------------------------


class HoldingServer:
    """Weights (elements,) in an actor."""

    def begin(self, elements: int) -> None:
        """Start with zeros."""
        self.weights = begun(elements, 0.0)

    def get_weights(self) -> Array:
        """The weights."""
        return self.weights


class HoldingWorker:
    """Its own weights (elements,) and its gradient, in an actor."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def begin(self, elements: int) -> None:
        """Make the arrays."""
        self.weights, self.gradient = begun(elements, 0.0), begun(elements, self.rank + 1)


@final
class DocumentedServer(HoldingServer):
    """`ParameterServer` of Ray's example (doc/source/ray-core/examples/plot_parameter_server), in NumPy."""

    def apply_gradients(self, *gradients: Array) -> Array:
        """One update by the sum of the gradients; the weights after it."""
        self.weights -= LEARNING_RATE * sum(gradients[1:], start=gradients[0])
        return self.weights


@final
class DocumentedWorker(HoldingWorker):
    """`DataWorker` of the same example: sets the weights, and gives a gradient."""

    def compute_gradients(self, weights: Array) -> Array:
        """Pull these weights, push this gradient."""
        self.weights[...] = weights
        return self.gradient


def drive(server: Any, workers: list[Any], seconds: float) -> list[Pushed]:
    """The driver's loop of the same example, asynchronous: for each worker what it was waited for."""
    weights = server.get_weights.remote()
    computing = {worker.compute_gradients.remote(weights): rank for rank, worker in enumerate(workers)}
    begin = perf_counter()
    done = [Pushed(0, 0.0)] * len(workers)
    while computing:
        ready, _ = ray.wait(list(computing), timeout=UPDATE_SECONDS)
        if not ready:
            raise AgentError(f"no worker gave a gradient within {UPDATE_SECONDS:g} s")
        rank = computing.pop(ready[0])
        weights = server.apply_gradients.remote(ready[0])
        now = perf_counter() - begin
        if now < seconds or done[rank].updates + 1 < FEWEST:
            computing[workers[rank].compute_gradients.remote(weights)] = rank
        done[rank] = Pushed(done[rank].updates + 1, now)
    get([weights], CALL_SECONDS, "apply the last gradient")
    return done


# -- one immutable object a version ------------------------------------------------------------------------


@final
class SnapshotServer(HoldingServer):
    """Puts every version of the parameters into Ray's object store once, and hands out the reference."""

    def push(self, gradient: Array) -> list[Any]:
        """One update; the reference to the version that it made."""
        self.weights -= LEARNING_RATE * gradient
        self.version = ray.put(self.weights)
        return [self.version]


@final
class SnapshotAgent(HoldingWorker):
    """Loops by itself: pushes by an actor call, pulls by the reference that comes back."""

    def update(self, server: Any, seconds: float) -> Pushed:
        """Push and pull for so long."""

        def update() -> None:
            [version] = ray.get(server.push.remote(self.gradient), timeout=UPDATE_SECONDS)
            self.weights[...] = ray.get(version, timeout=UPDATE_SECONDS)

        return pushed(update, seconds)
