"""Claims about parts of the user's whose work would never be done: refused, or named in the first steps"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import AgentError, ConfigurationError

pytestmark = pytest.mark.usefixtures("own_home")

RNG = np.random.default_rng(7)
DATA = d5.from_arrays(RNG.standard_normal((24, 4)).astype(np.float32), RNG.integers(3, size=24), name="tiny")


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": torch.nn.Linear(4, 3), "dataset": DATA, "optimizer": d5.optimizers.SGD(0.1), "agents": 2,
        "batch_size": 3, "monitor_seconds": 0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(values | changes))


def trained(steps: int = 4, **changes: Any) -> dict[str, np.ndarray[Any, Any]]:
    with d5.simulate(experiment(**changes)) as group:
        group.train(steps, progress=False)
        return group.parameters()


class Rule(d5.DistributedOptimizer):
    """All agents' mean gradient, and what a test adds to it."""

    def step(self, batch: Any) -> None:
        gradient = self.gradient(batch)
        self.communication.allreduce(gradient)
        gradient /= self.communication.size
        self.act(gradient)

    def act(self, gradient: Any) -> Any:
        self.apply(gradient)


class Rebinds(Rule):
    def act(self, gradient: Any) -> Any:
        x = self.x
        x = x - 0.1 * gradient


class Returns(d5.DistributedOptimizer):
    def step(self, batch: Any) -> Any:
        return self.x - 0.1 * self.gradient(batch)


class Later(d5.DistributedOptimizer):
    def step(self, batch: Any) -> Any:
        async def body() -> None:
            self.apply(self.gradient(batch))

        return body()


class Async(d5.DistributedOptimizer):
    async def step(self, batch: Any) -> None:  # type: ignore[override]
        self.apply(self.gradient(batch))


class AsyncFinish(Rule):
    async def finish(self) -> None:  # type: ignore[override]
        return


class Generates(d5.DistributedOptimizer):
    def step(self, batch: Any) -> Any:
        self.apply(self.gradient(batch))
        yield


class Alone(Rule):
    """One model is what a rule has that says nothing else; this one's first agent goes another way."""

    def act(self, gradient: Any) -> Any:
        self.apply(gradient * (1 + (self.communication.rank == 0)))


@dataclasses.dataclass(frozen=True)
class Update(d5.Optimizer):
    """x ← x − η g, or as a test has it."""

    learning_rate: float = 0.1
    kind: str = "right"

    def update(self, x: Any, gradient: Any, state: Any) -> Any:
        if self.kind == "right":
            x -= self.learning_rate * gradient
            return None
        if self.kind == "rebinds":
            x = x - self.learning_rate * gradient
            return None
        return x - self.learning_rate * gradient


@dataclasses.dataclass(frozen=True)
class AsyncUpdate(Update):
    async def update(self, x: Any, gradient: Any, state: Any) -> None:  # type: ignore[override]
        x -= self.learning_rate * gradient


class Order(d5.Sampler):
    """An order of the user's own."""

    def __init__(self, draw: Callable[[int, np.random.Generator], Any]) -> None:
        self.draw = draw

    def order(self, samples: int, *, epoch: int, seed: int) -> Any:
        return self.draw(samples, np.random.default_rng([seed, epoch]))


class AsyncOrder(d5.Sampler):
    async def order(self, samples: int, *, epoch: int, seed: int) -> Any:  # type: ignore[override]
        return np.arange(samples)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"distributed": Async}, r"Async\.step"), ({"distributed": Generates}, r"Generates\.step"),
        ({"distributed": AsyncFinish}, r"AsyncFinish\.finish"),
        ({"optimizer": AsyncUpdate()}, r"AsyncUpdate\.update"),
        ({"train_sampler": AsyncOrder()}, r"AsyncOrder\.order"),
    ],
)  # fmt: skip
def test_body_that_nobody_would_run_is_refused_when_built(changes: dict[str, Any], named: str) -> None:
    """A coroutine or a generator in the place of a method is refused before anything starts."""
    with pytest.raises(ConfigurationError, match=named):
        experiment(**changes)


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"distributed": Rebinds}, "x in place"),
        ({"distributed": Returns}, "at step 0.*returned a Tensor"),
        ({"distributed": Later}, "at step 0.*returned a coroutine"),
        ({"optimizer": Update(kind="rebinds")}, "x in place"),
        ({"optimizer": Update(kind="returns")}, "x in place"),
        ({"optimizer": d5.optimizers.WeightDecay(Update(kind="rebinds"), 1e-9)}, "x in place"),
        ({"distributed": Alone}, "agents' parameters differ"),
        ({"train_sampler": Order(lambda n, rng: rng.integers(n, size=n))}, "at step 0.*replacement"),
        ({"train_sampler": Order(lambda n, rng: np.zeros(n, np.int64))}, "sample 0 24 times"),
        ({"train_sampler": Order(lambda n, rng: np.random.default_rng().permutation(n))}, "two orders"),
    ],
)
def test_what_is_never_done_is_named(changes: dict[str, Any], named: str) -> None:
    """The run does not complete, and the error says what the part does, and what it is to do."""
    with pytest.raises(AgentError, match=f"(?s){named}"):
        trained(**changes)


def test_own_parts_that_do_their_work_train_as_the_ready_ones() -> None:
    """The same rule, update and order, written by the user, give the same parameters bit for bit."""
    module = torch.nn.Linear(4, 3)
    ordered = d5.samplers.OrderedSampler()
    ready = trained(model=module, train_sampler=ordered)
    own = trained(
        model=module, distributed=Rule, optimizer=Update(), train_sampler=Order(lambda n, rng: np.arange(n))
    )
    assert all(np.allclose(own[name], value, rtol=1e-6) for name, value in ready.items())
    waits = trained(steps=1, model=module, optimizer=Update(learning_rate=0.1, kind="rebinds"))
    assert all(np.array_equal(waits[name], value.detach()) for name, value in module.named_parameters())


def test_a_rate_that_warms_up_from_nothing_for_an_epoch_is_no_mistake() -> None:
    """x stands still as long as the schedule says so."""
    warming = d5.optimizers.Scheduled(Update(), learning_rate=d5.schedules.WarmUp(0.1, 1))
    module = torch.nn.Linear(4, 3)
    still = trained(model=module, optimizer=warming, batch_size=1, steps=11)
    assert all(np.array_equal(still[name], value.detach()) for name, value in module.named_parameters())


@dataclasses.dataclass(frozen=True)
class StateOfNumPy(d5.Optimizer):
    """Momentum, by someone who knows NumPy."""

    def state(self, x: Any) -> Any:
        return {"velocity": np.zeros_like(x)}

    def update(self, x: Any, gradient: Any, state: Any) -> None:
        state["velocity"] = 0.9 * state["velocity"] + gradient
        x -= 0.1 * state["velocity"]


def test_state_of_another_library_than_the_parameters_is_named() -> None:
    """NumPy's arrays and tensors do not add up, as NumPy says in words that name nothing of the user's."""
    with pytest.raises(AgentError, match=r"StateOfNumPy\(\): its state 'velocity' .* by 0 \* x"):
        trained(optimizer=StateOfNumPy())
