"""What a module and its loss keep beside tensors, in checkpoints, after deaths, and in the model given out"""

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import d5ray as d5
from d5ray.errors import AgentError
from tests.plain_torch import TwoLayers, samples

SAVED, STEPS = 4, 7
Tensors = dict[str, np.ndarray[Any, Any]]


class Counts(TwoLayers):
    def prepare(self) -> None:
        self.passes = 0

    def part(self) -> float:
        self.passes += 1
        return self.passes / 6

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        self.reached = self.part() if self.training else getattr(self, "reached", 1.0)
        return torch.tanh(hidden) * min(1.0, self.reached)


class HasExtraState(Counts):
    def prepare(self) -> None:
        self.passes = 0
        object.__setattr__(self, "reached", 1.0)

    def get_extra_state(self) -> Any:
        return {"passes": self.passes, "squares": torch.tensor(self.passes**2)}

    def set_extra_state(self, state: Any) -> None:
        self.passes = int(state["squares"].sqrt())


class CountsInside(Counts):
    """In a dictionary that stands in two places, beside what no checkpoint keeps, which stays as it is."""

    def prepare(self) -> None:
        self.first = self.second = {"passes": [0]}
        self.odd = re.compile("a")

    def part(self) -> float:
        self.first["passes"][0] += 1
        return self.second["passes"][0] / 6


class CountsInClosure(Counts):
    def prepare(self) -> None:
        passes = 0

        def part() -> float:
            nonlocal passes
            passes += 1
            return passes / 6

        self.part = part  # type: ignore[method-assign]


class Draws(Counts):
    def prepare(self) -> None:
        self.of_torch = torch.Generator().manual_seed(1)
        self.of_numpy: dict[str, Any] = {"new": np.random.default_rng(1), "old": np.random.RandomState(1)}

    def part(self) -> float:
        drawn = torch.rand((), generator=self.of_torch).item()
        return float(drawn + self.of_numpy["new"].random() * self.of_numpy["old"].rand())


class HiddenTeacher(TwoLayers):
    """In a list, so that it is no part: it has its own parameters, which follow; so does a tensor beside."""

    def prepare(self) -> None:
        self.teacher, self.mean = [nn.Linear(6, 6)], torch.zeros(6)

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        if self.training:
            with torch.no_grad():
                self.teacher[0].weight.mul_(0.5).add_(self.back.weight.mean())
                self.mean = 0.5 * self.mean + self.back.bias
        return torch.tanh(self.teacher[0](hidden) - self.mean)


class Settles(Counts):
    def prepare(self) -> None:
        self.passes, self.dropout = 0, nn.Dropout(0.9)

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.passes += 1
            self.dropout.p *= 0.8
            if self.passes == 3:
                self.back.requires_grad_(False)
                self.dropout.eval()
        found: torch.Tensor = self.dropout(torch.tanh(hidden))
        return found


class Shifted(nn.Module):
    shift: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.zeros(3))

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.shift = self.shift + torch.tensor([0.1, 0.0, -0.1])
        return cross_entropy(scores - self.shift, labels)


def growing() -> Any:
    seen: list[int] = []

    def loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        seen.append(len(labels))
        return cross_entropy(scores, labels) * len(seen)

    return loss


MODULES: tuple[Callable[[], TwoLayers], ...] = (
    Counts, HasExtraState, CountsInside, CountsInClosure, Draws, HiddenTeacher, Settles,
)  # fmt: skip
CASES: dict[str, tuple[Any, Any]] = {
    **{kind.__name__: (kind, cross_entropy) for kind in MODULES},
    "loss with a buffer": (TwoLayers, Shifted()),
    "loss over a list": (TwoLayers, growing()),
}  # fmt: skip


def experiment(kind: Any, loss: Any, *events: Any, **options: Any) -> d5.Experiment:
    torch.manual_seed(5)
    return d5.Experiment(
        **{
            "model": kind(), "dataset": samples(48), "loss": loss, "optimizer": d5.optimizers.SGD(0.3),
            "agents": 2, "batch_size": 4, "epochs": 9, "seed": 5, "evaluate": False, "monitor_seconds": 0,
            "events": events,
        } | options
    )  # fmt: skip


def parameters(given: d5.Experiment, steps: int = STEPS, **options: Any) -> list[Tensors]:
    with d5.simulate(given, **options) as group:
        group.train(steps=steps, progress=False)
        return [group.parameters(rank) for rank in range(len(group.agents))]


def check_equal(found: list[Tensors], expected: list[Tensors]) -> None:
    for own, other in zip(found, expected, strict=True):
        for name, value in other.items():
            np.testing.assert_array_equal(own[name], value, err_msg=name)


@pytest.mark.parametrize("name", CASES)
def test_a_training_goes_on_as_if_it_had_not_stopped(name: str, tmp_path: Path) -> None:
    saving = d5.events.Checkpoint(every_steps=SAVED, path=str(tmp_path))
    parameters(experiment(*CASES[name], saving), steps=SAVED)
    found = parameters(experiment(*CASES[name]), steps=STEPS - SAVED, resume=tmp_path)
    check_equal(found, parameters(experiment(*CASES[name])))


@pytest.mark.parametrize("name", CASES)
def test_agents_go_on_after_a_death_as_if_there_had_been_none(name: str) -> None:
    given = experiment(*CASES[name], on_failure="restart")
    found = parameters(given, faults=d5.Faults().kill(agent=1, at_step=2))
    check_equal(found, parameters(given))


@pytest.mark.parametrize("kind", MODULES)
def test_the_model_that_is_given_out_evaluates_as_the_agent(kind: Any, tmp_path: Path) -> None:
    saving = d5.events.Checkpoint(path=str(tmp_path))
    inputs = samples().test.inputs
    with d5.simulate(experiment(kind, cross_entropy, saving, epochs=1)) as group:
        group.train(progress=False)
        expected = group.agents[0].executor.inference(inputs)
        models = [group.model(0), group.model("mean")]
    for model in (*models, d5.load_model(group.folder.name), d5.load_model(tmp_path)):
        assert not any(part.training for part in model.modules())
        with torch.no_grad():
            np.testing.assert_allclose(model(torch.from_numpy(inputs)).numpy(), expected, atol=1e-6)


class Cycles(Counts):
    def prepare(self) -> None:
        self.parts = itertools.cycle([0.1, 0.5, 1.0])

    def part(self) -> float:
        return next(self.parts)


class Switches(TwoLayers):
    def prepare(self) -> None:
        self.act: Any = torch.tanh

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.act(hidden)
        self.act = torch.relu
        return found


@pytest.mark.parametrize(("kind", "words"), [(Cycles, "the model.parts is a cycle"), (Switches, "act.*relu")])
def test_what_no_checkpoint_keeps_is_refused_by_name(kind: Any, words: str, tmp_path: Path) -> None:
    saving = d5.events.Checkpoint(every_steps=1, path=str(tmp_path))
    with pytest.raises(AgentError, match=words):
        parameters(experiment(kind, cross_entropy, saving))
