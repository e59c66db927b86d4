"""Claims about on_ready: which parts of the gradient are announced in a backward pass, and when."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from d5ray.errors import ConfigurationError, PeerLost
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.networks.executors.gradient_buckets import Range
from tests.frameworks.torch_executors import random_batch, torch_executor


def made(model: Any, /, **of: Any) -> TorchExecutor:
    return torch_executor(model, (1, 8, 8), of=of)


batch = partial(random_batch, (1, 8, 8), 5)


class Sometimes(nn.Module):
    """Three layers in a row, of which the one in the middle and the last can be left out."""

    skipped: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 4)
        self.middle = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(inputs.flatten(1)))
        for name in ("middle", "last"):
            if name not in self.skipped:
                hidden = torch.tanh(self.get_submodule(name)(hidden))
        return hidden


class Recorder:
    """An on_ready that keeps what it was called with, and the whole gradient as it stood then."""

    def __init__(self, executor: TorchExecutor) -> None:
        self.executor = executor
        self.ranges: list[Range] = []
        self.seen: list[torch.Tensor] = []

    def __call__(self, begin: int, end: int) -> None:
        self.ranges.append((begin, end))
        self.seen.append(self.executor.gradients.clone())


def test_announcements_come_while_the_backward_pass_goes_on() -> None:
    """The last layers' ranges are announced when the layers before them have no gradient yet."""
    executor = made("lenet")
    recorder = Recorder(executor)
    ranges = executor.buckets(4000)
    executor.inference_and_backprop(*batch(), on_ready=recorder)
    assert len(ranges) >= 3
    for (begin, _), seen in zip(ranges[:-1], recorder.seen, strict=False):
        weight = slice(0, executor.slots[0].size)  # of the first layer, which the backward pass reaches last
        assert begin >= weight.stop and not seen[weight].any() and executor.gradients[weight].any()


@pytest.mark.parametrize("skipped", [(), ("middle", "last")], ids=str)
def test_every_agent_announces_the_same_ranges_in_the_same_order(skipped: tuple[str, ...]) -> None:
    """Also one whose batch leaves layers out: their ranges are announced in their turn, with zeros."""
    executor = made(Sometimes)
    executor.module.skipped = skipped  # type: ignore[assignment]
    recorder = Recorder(executor)
    ranges = executor.buckets(1)
    executor.gradients.fill_(7.0)  # of an earlier batch
    executor.inference_and_backprop(*batch(), on_ready=recorder)
    assert tuple(recorder.ranges) == ranges and len(ranges) == len(executor.slots)
    for slot, seen in zip(reversed(executor.slots), recorder.seen, strict=True):
        used = slot.name.split(".")[0] not in skipped
        assert bool(seen[slot.offset : slot.offset + slot.size].any()) == used


def hooks(executor: TorchExecutor) -> list[Any]:
    """The hooks that stand in a module's parameters."""
    found = (getattr(tensor, "_post_accumulate_grad_hooks", None) for tensor in executor.module.parameters())
    return [hook for kept in found if kept for hook in kept.values()]


def test_no_hook_is_left_but_the_models_own() -> None:
    """Before, after, and while on_ready is not used there is only the model's, which runs before on_ready."""
    executor = made("mlp")
    weight = executor.module.get_parameter("3.weight")

    def own(tensor: torch.Tensor) -> None:
        assert tensor.grad is not None
        tensor.grad.clamp_(-1e-3, 1e-3)

    weight.register_post_accumulate_grad_hook(own)  # type: ignore[no-untyped-call]
    during: list[int] = []
    clipped: list[float] = []
    place = executor.slots[2]
    executor.buckets(1)

    def on_ready(begin: int, end: int) -> None:
        during.append(len(hooks(executor)))
        if (begin, end) == (place.offset, place.offset + place.size):
            clipped.append(executor.gradients[begin:end].abs().max().item())

    executor.inference_and_backprop(*batch())
    assert hooks(executor) == [own]
    executor.inference_and_backprop(*batch(), on_ready=on_ready)
    assert during == [5] * 4 and clipped == [np.float32(1e-3)]
    assert hooks(executor) == [own]


def test_what_on_ready_raises_is_raised_and_leaves_nothing() -> None:
    """An error of the second range comes out as itself; no hook is left, and the next gradient is right."""
    executor, twin = made("lenet"), made("lenet")
    executor.buckets(2000)
    calls: list[Range] = []

    def lose_the_peer(begin: int, end: int) -> None:
        calls.append((begin, end))
        if len(calls) == 2:
            raise PeerLost(3, "it was killed")

    with pytest.raises(PeerLost) as caught:
        executor.inference_and_backprop(*batch(seed=1), on_ready=lose_the_peer)
    assert (caught.value.rank, len(calls), hooks(executor)) == (3, 2, [])
    recorder = Recorder(executor)
    twin.inference_and_backprop(*batch(seed=2))
    executor.inference_and_backprop(*batch(seed=2), on_ready=recorder)
    assert torch.equal(executor.gradients, twin.gradients)
    assert tuple(recorder.ranges) == executor.buckets(2000)


class Checkpointed(nn.Module):
    """One layer in two segments, which are checkpointed in training: reentrant ones reach it twice."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.first = nn.Linear(64, 4)
        self.twice = nn.Linear(4, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.first(inputs.flatten(1))
        for _ in range(2):
            if self.training:
                hidden = checkpoint(self.segment, hidden, use_reentrant=self.reentrant)
            else:
                hidden = self.segment(hidden)
        return hidden

    def segment(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.twice(hidden))


def test_a_gradient_in_several_parts_is_never_announced_in_part() -> None:
    """Checkpoints that reach a parameter once are right; reentrant ones are refused, and right without."""
    plain, reentrant, other = (made(Checkpointed, reentrant=kind) for kind in (False, True, False))
    plain.inference_and_backprop(*batch())
    recorder = Recorder(other)
    ranges = other.buckets(1)
    other.inference_and_backprop(*batch(), on_ready=recorder)
    for (begin, end), seen in zip(ranges, recorder.seen, strict=True):
        assert torch.equal(seen[begin:end], plain.gradients[begin:end])
    reentrant.buckets(1)
    with pytest.raises(ConfigurationError, match=r"'twice\.(weight|bias)' got another gradient"):
        reentrant.inference_and_backprop(*batch(), on_ready=lambda *_: None)
    reentrant.inference_and_backprop(*batch())
    np.testing.assert_allclose(reentrant.gradients.numpy(), plain.gradients.numpy(), rtol=1e-5, atol=1e-8)
