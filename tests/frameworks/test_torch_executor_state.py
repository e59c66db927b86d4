"""Claims about what a module changes without training it: `untrained`, `counters` and their names."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch import from_model
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

Array = np.ndarray[Any, Any]


def made(model: Any, /, **options: Any) -> TorchExecutor:
    return from_model(
        model, options, sample_shape=(2, 4, 4), classes=4, loss=SoftmaxCrossEntropyLoss(), seed=1, threads=1
    )


def batch(seed: int, size: int = 6) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    inputs = 2 + 3 * generator.standard_normal((size, 2, 4, 4))
    return inputs.astype(np.float32), generator.integers(0, 4, size)


def normalized() -> nn.Module:
    """A normalization of the inputs themselves, so that its statistics are known, and another behind it."""
    return nn.Sequential(
        nn.BatchNorm2d(2), nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4)
    )


def flat(module: nn.Module) -> torch.Tensor:
    """The floating-point buffers of a module one behind the other."""
    return torch.cat([buffer.reshape(-1) for buffer in module.buffers() if buffer.is_floating_point()])


@pytest.mark.parametrize("model", [normalized, "resnet8"])
def test_after_three_steps_the_flat_buffer_equals_the_modules(model: Any) -> None:
    """And those of plain PyTorch, bit for bit; counters count the steps, evaluations use and leave them."""
    executor = made(model)
    twin = copy.deepcopy(executor.module)
    descent = torch.optim.SGD(twin.parameters(), lr=0.125)  # exact, however it is multiplied
    before = executor.untrained.clone()
    for seed in range(3):
        inputs, labels = batch(seed)
        executor.inference_and_backprop(inputs, labels)
        executor.parameters -= 0.125 * executor.gradients
        descent.zero_grad()
        nn.functional.cross_entropy(twin(torch.from_numpy(inputs)), torch.from_numpy(labels)).backward()  # type: ignore[no-untyped-call]
        descent.step()
    assert torch.equal(executor.untrained, flat(executor.module))
    assert torch.equal(executor.untrained, flat(twin)) and not torch.equal(executor.untrained, before)
    assert [int(counter) for counter in executor.counters] == [3] * len(executor.counters)
    assert len(executor.counters) == sum(isinstance(part, nn.BatchNorm2d) for part in twin.modules()) > 1
    before, scores = executor.untrained.clone(), executor.inference(batch(1)[0])
    executor.evaluate(*batch(2))
    assert torch.equal(executor.untrained, before)
    twin.eval()
    expected = twin(torch.from_numpy(batch(1)[0])).detach().numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    executor.untrained.fill_(1.0)  # the module's own are views of it
    assert all(each.eq(1).all() for each in executor.module.buffers() if each.is_floating_point())


def test_flattening_keeps_the_initial_values_and_one_type() -> None:
    """Whatever type the parameters have: the state has its own."""

    class Tables(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(32, 4)
            self.register_buffer("scale", torch.tensor(0.125, dtype=torch.float64))
            self.register_buffer("mask", torch.tensor([[True], [False]]).expand(2, 2))
            self.register_buffer("table", torch.arange(6, dtype=torch.float64).reshape(2, 3).T)
            self.register_buffer("missing", None)
            self.register_buffer("positions", torch.arange(3), persistent=False)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.last(inputs.flatten(1)) * self.scale
            return scores

    executor = made(Tables)
    assert executor.parameters.dtype == torch.float32 and executor.untrained.dtype == torch.float64
    assert executor.untrained.tolist() == [0.125, 0, 3, 1, 4, 2, 5]
    assert [counter.tolist() for counter in executor.counters] == [[[True, True], [False, False]], [0, 1, 2]]
    executor.counters[0][0, 0] = False  # one number, not the row that the model stretched it over
    assert executor.module.get_buffer("mask").tolist() == [[False, True], [False, False]]
    state = executor.named_state()
    assert list(state) == ["scale", "mask", "table", "positions"]
    assert state["table"].tolist() == [[0, 3], [1, 4], [2, 5]] and state["mask"].dtype == np.bool_


# -- modules that put another tensor in a buffer's place ---------------------------------------------------


class Center(nn.Module):
    """Subtracts a running mean of the inputs, of which it makes a new tensor in every step."""

    center: torch.Tensor
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(32, 4)
        self.register_buffer("center", torch.zeros(2, 1, 1))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.center = 0.5 * self.center + 0.5 * inputs.mean(dim=(0, 2, 3), keepdim=True)[0]
            self.calls = self.calls + 1
        scores: torch.Tensor = self.last((inputs - self.center).flatten(1))
        return scores


def test_a_buffer_that_is_replaced_stays_a_view() -> None:
    """The flat buffer follows the module's arithmetic, and what is written to it enters the next step."""
    executor = made(Center)
    center = np.zeros(2)
    for seed in range(6):
        if seed == 3:
            center = np.array([5.0, -5.0])  # as if it came from other agents
            executor.untrained[...] = torch.from_numpy(center)
            executor.counters[0].fill_(100)
        inputs, labels = batch(seed)
        executor.inference_and_backprop(inputs, labels)
        center = 0.5 * center + 0.5 * inputs.mean(axis=(0, 2, 3), dtype=np.float64)
        np.testing.assert_allclose(executor.untrained, center, rtol=1e-5)
        assert executor.module.get_buffer("center").data_ptr() == executor.untrained.data_ptr()
    assert [int(counter) for counter in executor.counters] == [103]
    executor.module.get_submodule("").center = torch.full((2, 1, 1), 8.0)
    assert executor.named_state()["center"].tolist() == [[[8.0]], [[8.0]]]
    assert executor.untrained.tolist() == [8.0, 8.0]


@pytest.mark.parametrize(
    ("value", "words"),
    [(torch.zeros(3), r"\(\(3,\), torch.float32\)"), (None, r"\(None\)")],
    ids=["another shape", "nothing"],
)
def test_a_buffer_that_becomes_another_is_refused(value: torch.Tensor | None, words: str) -> None:
    """Agents could not exchange it any more: found and expected shape and type are named."""

    class Changing(Center):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            scores: torch.Tensor = self.last(inputs.flatten(1))
            self.center = value  # type: ignore[assignment]
            return scores

    executor = made(Changing)
    with pytest.raises(
        ConfigurationError, match=r"its buffer 'center' \(\(2, 1, 1\), torch.float32\) by " + words
    ):
        executor.inference_and_backprop(*batch(0))


# -- refused ---------------------------------------------------------------------------------------------
