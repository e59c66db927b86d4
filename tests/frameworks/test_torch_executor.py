"""Claims about the PyTorch executor: views of flat buffers, gradients, evaluation, what is refused."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch.executor import TorchExecutor
from tests.frameworks.torch_executors import Array, random_batch, torch_executor


class Small(nn.Module):
    """(batch, 2, 3) to 4 scores, in float64, smooth, with all kinds of tensors: matrix, vector, scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 5).double()
        self.gain = nn.Parameter(torch.tensor(1.5, dtype=torch.float64))
        self.last = nn.Linear(5, 4).double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(inputs.double().flatten(1)))
        scores: torch.Tensor = self.last(self.gain * hidden)
        return scores


def made(model: Any = Small, **options: Any) -> TorchExecutor:
    return torch_executor(model, (2, 3), **options)


batch = partial(random_batch, (2, 3))

# -- buffers ---------------------------------------------------------------------------------------------


def test_the_modules_tensors_are_views_of_the_flat_buffer() -> None:
    """Writing the buffer changes the module's output, and writing the module changes the buffer."""
    executor = made()
    inputs, _ = batch(3)
    reference = copy.deepcopy(executor.module)
    generator = torch.Generator().manual_seed(5)
    values = torch.randn(executor.parameters.shape, generator=generator, dtype=torch.float64)
    executor.parameters.copy_(values)
    at = 0
    for tensor in reference.parameters():
        tensor.data = values[at : at + tensor.numel()].view(tensor.shape)
        at += tensor.numel()
    np.testing.assert_array_equal(
        executor.inference(inputs), reference(torch.from_numpy(inputs)).detach().numpy()
    )
    with torch.no_grad():
        for tensor in executor.module.parameters():
            tensor.fill_(0.25)
    assert executor.parameters.tolist() == [0.25] * at
    for tensor, slot in zip(executor.module.parameters(), executor.slots, strict=True):
        assert tensor.data_ptr() == executor.parameters.data_ptr() + 8 * slot.offset
        assert tensor.grad is not None
        assert tensor.grad.data_ptr() == executor.gradients.data_ptr() + 8 * slot.offset


def test_flattening_keeps_the_initial_values() -> None:
    """Those that the seed gives; a module that was given as it is keeps its own, and is not touched."""
    torch.manual_seed(1)
    expected = dict(Small().named_parameters())
    found = made().named_parameters()
    assert list(found) == list(expected)
    for name, value in found.items():
        np.testing.assert_array_equal(value, expected[name].detach().numpy())
        value += 1  # a copy
    given = Small()
    first, second = made(given, seed=3), made(given, seed=4)
    assert first.parameters.tolist() == second.parameters.tolist() != made(seed=3).parameters.tolist()
    first.parameters.zero_()
    assert second.parameters.abs().sum() > 0 and all(each.any() for each in given.parameters())


# -- gradients -------------------------------------------------------------------------------------------


def check_against_autograd(executor: TorchExecutor, inputs: Array, labels: Array) -> None:
    """Loss and flat gradient are those of plain autograd on a copy of the module."""
    twin = copy.deepcopy(executor.module)
    for tensor in twin.parameters():
        tensor.grad = None
    scores = twin(torch.from_numpy(inputs))
    expected = nn.functional.cross_entropy(scores, torch.from_numpy(labels))
    expected.backward()  # type: ignore[no-untyped-call]
    pieces = [
        (torch.zeros_like(tensor) if tensor.grad is None else tensor.grad).ravel()
        for tensor in twin.parameters()
    ]
    assert executor.inference_and_backprop(inputs, labels) == expected.item()
    np.testing.assert_array_equal(executor.gradients.numpy(), torch.cat(pieces).numpy())


@pytest.mark.parametrize("size", [1, 32])
def test_the_gradient_is_that_of_plain_autograd(size: int) -> None:
    """Bit for bit, for every size of batch."""
    check_against_autograd(made(), *batch(size))


# -- refused ---------------------------------------------------------------------------------------------


class Mixed(Small):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.5, dtype=torch.float32))


class Untrained(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.flatten(1)[:, :4]


class Scoreless(Small):
    def forward(self, inputs: torch.Tensor) -> Any:
        return "scores", super().forward(inputs).shape


def no_module() -> Any:
    return {"layers": 3}


REFUSED: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "several types": (Mixed, ("torch.float32, torch.float64", "needs one", ".to(torch.float32)")),
    "no parameters": (Untrained, ("no parameters to train", "at least one layer with weights")),
    "outputs without a tensor": (Scoreless, ("returned a tuple", "one tensor of scores")),
    "too few scores": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 3)),
        ("the shape (batch, 3)", "needs (batch, 4)", "give 4 scores per label"),
    ),
    "other samples": (
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(7, 4)),
        ("does not take samples of shape (2, 3)", "cannot be multiplied"),
    ),
    "no module": (no_module, ("made a dict", "needs a torch.nn.Module", "return one")),
}


@pytest.mark.parametrize(("model", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_a_model_that_does_not_fit_is_refused(model: Callable[[], Any], words: tuple[str, ...]) -> None:
    """Before the first step: what was found, what is needed, what to do."""
    with pytest.raises(ConfigurationError) as caught:
        made(model)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.zeros(3), r"\(\(3,\), torch.float32\)"),
        (torch.zeros(2, 1, 1, dtype=torch.float64), r"\(\(2, 1, 1\), torch.float64\)"),
        (None, r"\(None\)"),
    ],
    ids=["another shape", "another type", "nothing"],
)
def test_a_buffer_that_becomes_another_is_refused(value: torch.Tensor | None, words: str) -> None:
    """Agents could not exchange it any more: found and expected shape and type are named."""

    class Changing(Small):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("center", torch.zeros(2, 1, 1))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            scores = super().forward(inputs)
            self.center = value
            return scores

    with pytest.raises(
        ConfigurationError, match=r"its buffer 'center' \(\(2, 1, 1\), torch.float32\) by " + words
    ):
        made(Changing).inference_and_backprop(*batch(3))
