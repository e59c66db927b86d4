"""Claims about traces: they name the first thing that two runs of one model compute differently"""

import os
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.frameworks.torch import from_model
from d5ray.frameworks.torch.tracing import Traced, TracedExecutor
from d5ray.networks.executors.traces import first_parting, meaning
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss


def noise() -> float:
    """Another number at every call, of no generator that could be seeded."""
    return int.from_bytes(os.urandom(4), "little") / 2**32


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + noise())


class Between(nn.Module):
    """Noise in the forward pass of the whole, between its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.second(self.first(x) + noise())
        return scores


class Backwards(torch.autograd.Function):
    """The same forwards, noisy backwards."""

    @staticmethod
    def forward(_context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(_context: Any, *gradients: Any) -> Any:
        return gradients[0] * (1 + noise())


class NoisyGradient(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = Backwards.apply(x)  # type: ignore[no-untyped-call]
        return made


class Puts(nn.Module):
    """An operation of which PyTorch says that it is not deterministic."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros_like(x).put_(torch.tensor([0]), torch.tensor([0.0]))


class Draws(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + random.random())


def layers(*middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 4), *middle, nn.Linear(4, 3))


def traced(model: Any, steps: int = 3, vary: Any = lambda executor, step: None) -> TracedExecutor:
    """That many steps of gradient descent on the same batches; `vary` may meddle before each."""
    make = Traced(from_model)
    executor = make(
        model, {}, sample_shape=(6,), classes=3, loss=SoftmaxCrossEntropyLoss(), seed=5, threads=1
    )
    rng = np.random.default_rng(0)
    for step in range(steps):
        vary(executor, step)
        inputs = rng.normal(size=(8, 6)).astype(np.float32)
        executor.inference_and_backprop(inputs, rng.integers(0, 3, 8))
        executor.parameters -= 0.1 * executor.gradients
    return executor


def parting(model: Any, vary: Any = lambda executor, step: None) -> Any:
    first, second = (traced(model, vary=vary).trace for _ in range(2))
    return first_parting({0: first}, {0: second})


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (lambda: layers(Noisy()), "output of 1 (Noisy)"),
        (lambda: layers(nn.ReLU(), nn.Sequential(nn.Tanh(), Noisy())), "output of 2.1 (Noisy)"),
        (Between, "input of second (Linear)"),
        (lambda: layers(NoisyGradient()), "gradient of 0."),
    ],
)
def test_the_operation_is_named(model: Any, what: str) -> None:
    """In the first step, and what comes later of it is not blamed."""
    found = parting(model)
    assert found.step == 0
    assert found.what.startswith(what)


def test_what_repeats_has_one_trace() -> None:
    """Dropout too, whose numbers come from the seed; hash by hash, with an entry for every part."""
    assert parting(lambda: layers(nn.ReLU(), nn.Dropout(0.5))) is None
    trace = traced(lambda: layers(nn.ReLU()), steps=1).trace
    names = [entry.what for entry in trace]
    assert names[:12] == [
        "the batch", "the state of the random numbers", "the parameters", "the state that is not trained",
        "input of the model (Sequential)", "input of 0 (Linear)", "output of 0 (Linear)",
        "input of 1 (ReLU)", "output of 1 (ReLU)", "input of 2 (Linear)", "output of 2 (Linear)",
        "output of the model (Sequential)",
    ]  # fmt: skip
    assert sorted(names[12:14]) == ["gradient of 2.bias", "gradient of 2.weight"]
    assert sorted(names[14:16]) == ["gradient of 0.bias", "gradient of 0.weight"]
    assert names[16:] == ["the loss"]


def test_an_update_that_differs_is_named() -> None:
    """All gradients of step 0 agree, and the parameters of step 1 do not."""

    def disturb(executor: TracedExecutor, step: int) -> None:
        if step == 1:
            executor.parameters += noise()

    found = parting(lambda: layers(), disturb)
    assert (found.step, found.what) == (1, "the parameters")
    assert "the exchange between the agents, or the update rule" in found.meaning


def test_the_trace_changes_nothing() -> None:
    """The same losses and parameters as without it."""
    arguments: Any = {"sample_shape": (6,), "classes": 3, "loss": SoftmaxCrossEntropyLoss(), "seed": 5}
    plain = from_model(lambda: layers(nn.Dropout(0.5)), {}, threads=1, **arguments)
    rng = np.random.default_rng(0)
    for _ in range(3):
        plain.inference_and_backprop(rng.normal(size=(8, 6)).astype(np.float32), rng.integers(0, 3, 8))
        plain.parameters -= 0.1 * plain.gradients
    other = traced(lambda: layers(nn.Dropout(0.5)))
    np.testing.assert_array_equal(plain.numpy_parameters(), other.numpy_parameters())


def test_pytorchs_own_warnings_and_generators_without_a_seed_are_told() -> None:
    """One more step asks PyTorch; its settings are as before."""
    assert any("put_" in line for line in traced(lambda: layers(Puts())).warned())
    assert traced(lambda: layers(Draws())).warned() == [
        "the model draws from Python's `random`, which the recipe's seed does not reach"
    ]
    assert traced(lambda: layers(nn.ReLU())).warned() == []
    assert not torch.are_deterministic_algorithms_enabled()


def test_buckets_are_announced_through_a_trace() -> None:
    """on_ready gets the ranges that were set, and gradients' hashes are taken before it changes them."""
    executor = traced(lambda: layers(), steps=1)
    ranges = executor.buckets(1)
    seen: list[tuple[int, int]] = []

    def ready(begin: int, end: int) -> None:
        seen.append((begin, end))
        executor.gradients[begin:end] = 0

    before = [entry.digest for entry in executor.trace if entry.what == "gradient of 0.weight"]
    executor.inference_and_backprop(np.ones((2, 6), np.float32), np.array([0, 1]), ready)
    after = [entry.digest for entry in executor.trace if entry.what == "gradient of 0.weight"]
    assert tuple(seen) == ranges
    assert len(after) == len(before) + 1
    executor.inference_and_backprop(np.ones((2, 6), np.float32), np.array([0, 1]))
    assert executor.trace[-1].what == "the loss"
    again = [entry.digest for entry in executor.trace if entry.what == "gradient of 0.weight"]
    assert again[-1] == again[-2]


def test_every_kind_has_a_meaning() -> None:
    for what in ("the batch", "input of a (B)", "gradient of a", "the loss", "the parameters"):
        assert meaning(what) != "the runs did different things"
