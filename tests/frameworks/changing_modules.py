"""Modules and losses that keep more than tensors, which changes in training"""

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from tests.plain_torch import TwoLayers


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


class CountsInScript(nn.Module):
    """Compiled by TorchScript, which keeps its attributes itself: a counter, a flag, a list, a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.back, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
        self.passes, self.shifts = 0, False
        self.seen = [0.0]
        mean: Any = torch.jit.Attribute(torch.zeros(6), torch.Tensor)
        self.mean = mean

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.back(inputs)
        if self.training:
            self.passes += 1
            self.shifts = self.passes > 2
            self.seen.append(self.passes / 6)
            self.mean = 0.5 * self.mean + self.back.bias.detach()
        hidden = torch.tanh(hidden - self.mean) * min(1.0, self.seen[-1])
        scores: torch.Tensor = self.head(-hidden if self.shifts else hidden)
        return scores


def scripted() -> Any:
    return torch.jit.script(CountsInScript())


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


MODULES: tuple[Callable[[], Any], ...] = (
    Counts, HasExtraState, CountsInside, CountsInClosure, Draws, HiddenTeacher, Settles,
)  # fmt: skip
CASES: dict[str, tuple[Any, Any]] = {
    **{kind.__name__: (kind, cross_entropy) for kind in MODULES},
    "scripted": (scripted, cross_entropy),
    "loss with a buffer": (TwoLayers, Shifted()),
    "loss over a list": (TwoLayers, growing()),
}  # fmt: skip


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
