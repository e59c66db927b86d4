"""Claims about activation checkpointing: the same bits in less memory."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.ops.losses.function_loss import ModelLoss
from tests.frameworks.torch_executors import random_batch, torch_executor


class Block(nn.Module):
    """A residual block with Dropout."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down, self.drop = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.Dropout(0.3),
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        changed: torch.Tensor = inputs + self.drop(self.down(nn.functional.gelu(self.up(inputs))))
        return changed


class Blocks(nn.Module):
    """(batch, 6) to 4 scores by blocks in a ModuleList."""

    def __init__(self, width: int = 12, depth: int = 3) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, width), nn.Linear(width, 4)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        scores: torch.Tensor = self.last(hidden)
        return scores


class Own(Blocks):
    """One that has a method for it, as Hugging Face's have."""

    asked: Any = None

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: Any = None) -> None:
        self.asked = gradient_checkpointing_kwargs


def plain() -> nn.Module:
    """Layers in one Sequential, BatchNorm and Dropout among them."""
    layers: list[nn.Module] = []
    for width in (6, 12, 12, 12):
        layers += [nn.Linear(width, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3)]
    return nn.Sequential(*layers, nn.Linear(12, 4))


def nested() -> nn.Module:
    """Blocks in a Sequential in a module."""
    return nn.Sequential(
        nn.Linear(6, 12), nn.Sequential(Block(12), nn.BatchNorm1d(12), Block(12)), nn.Linear(12, 4)
    )


made = partial(torch_executor, shape=(6,))
batch = partial(random_batch, (6,), seed=3)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("model", [Blocks, plain, nested])
def test_loss_gradient_and_statistics_are_the_same_to_the_last_bit(model: Any, precision: str) -> None:
    """With Dropout, whose masks are drawn again, and BatchNorm, whose statistics count once; step by step."""
    executor, other = made(model, precision=precision), made(model, recompute=True, precision=precision)
    for _ in range(3):
        assert executor.inference_and_backprop(*batch()) == other.inference_and_backprop(*batch())
        assert torch.equal(executor.gradients, other.gradients)
        assert float(executor.gradients.norm()) > 0
        assert torch.equal(executor.buffers, other.buffers)
        assert [each.tolist() for each in executor.counters] == [each.tolist() for each in other.counters]
        for each in (executor, other):
            each.parameters.sub_(0.1 * each.gradients)
    assert executor.evaluate(*batch()) == other.evaluate(*batch())
    assert executor.state_dict().keys() == other.state_dict().keys()


def test_parts_are_computed_twice() -> None:
    """Every block once more in the backward pass, and none in an evaluation."""
    executor, calls = made(Blocks, recompute=True), []
    blocks: Any = executor.module.blocks
    for block in blocks:
        block.up.register_forward_hook(lambda *_: calls.append(1))
    executor.inference_and_backprop(*batch())
    assert len(calls) == 2 * 3
    executor.evaluate(*batch())
    assert len(calls) == 3 * 3


def test_a_models_own_way_is_taken() -> None:
    """The method that models of Hugging Face have is called, and nothing else is done."""
    executor = made(Own, recompute=True)
    assert executor.module.asked == {"use_reentrant": False}
    blocks: Any = executor.module.blocks
    assert "forward" not in vars(blocks[0])


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_model_of_hugging_face_is_asked_for_it() -> None:
    """GPT-2 recomputes with Dropout's masks drawn again; without its cache a last bit may differ."""
    pytest.importorskip("transformers")
    from transformers import GPT2Config, GPT2LMHeadModel  # noqa: PLC0415 - takes seconds

    def model() -> Any:
        return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2))

    tokens = np.random.default_rng(0).integers(0, 50, (4, 16))
    made = [
        torch_executor(model, (16,), 50, loss=ModelLoss(), recompute=recompute) for recompute in (False, True)
    ]
    losses = [each.inference_and_backprop(tokens, tokens) for each in made]
    assert losses[0] == losses[1]
    assert getattr(made[1].module, "is_gradient_checkpointing")  # noqa: B009 - a module's attribute
    torch.testing.assert_close(made[1].gradients, made[0].gradients, rtol=0, atol=1e-9)


def test_a_model_without_parts_is_refused() -> None:
    """There is nothing to compute again in one layer."""
    with pytest.raises(ConfigurationError, match=r"Linear has no parts .* nn.Sequential or nn.ModuleList"):
        made(nn.Linear(6, 4), recompute=True)


def kept(depth: int, *, recompute: bool) -> int:
    """The bytes that a pass over 10 samples keeps for its way back, beside the parameters."""
    executor = made(Blocks, of={"width": 64, "depth": depth}, recompute=recompute)
    own = {each.untyped_storage().data_ptr() for each in executor.module.parameters()}
    found: dict[int, torch.Tensor] = {}  # by address; they live on, so that no other has the same

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        found[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        executor.inference_and_backprop(*batch(10))
    return sum(each.untyped_storage().nbytes() for address, each in found.items() if address not in own)


def test_a_block_keeps_its_input_alone() -> None:
    """A further block keeps 64 float32 a sample, instead of 64, 256 and 256 and what was dropped: a ninth."""
    without, recomputed = (
        kept(25, recompute=recompute) - kept(24, recompute=recompute) for recompute in (False, True)
    )
    assert recomputed == 10 * 4 * 64
    assert without >= 10 * 4 * (64 + 256 + 256)
