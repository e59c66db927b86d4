"""Claims about precisions under PyTorch: float32 master weights, gradients within rounding, a loss scale"""

from collections import namedtuple
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.frameworks.torch.precision import GROWS_AFTER, LossScale
from d5ray.networks.device import GPUDevice
from d5ray.ops.losses.function_loss import FunctionLoss
from tests.frameworks.torch_executors import Array, random_batch, torch_executor

UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # half a unit in the last place


class Net(nn.Module):
    """(batch, 2, 8, 8) to 5 scores: a convolution, BatchNorm, tanh, Dropout, a linear layer."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(4 * 64, 5)
        self.seen: list[torch.dtype] = []

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        convolved = self.conv(inputs)
        self.seen = [inputs.dtype, convolved.dtype]
        scores: torch.Tensor = self.last(self.drop(torch.tanh(self.norm(convolved))).flatten(1))
        return scores


made = partial(torch_executor, shape=(2, 8, 8), classes=5)
batch = partial(random_batch, (2, 8, 8), 12, classes=5)


def gradients(executor: TorchExecutor, inputs: Array, labels: Array) -> tuple[float, torch.Tensor]:
    loss = executor.inference_and_backprop(inputs, labels)
    return loss, executor.gradients.double().clone()


@pytest.mark.parametrize("precision", UNIT)
def test_gradients_are_those_of_float64_within_the_types_rounding(precision: str) -> None:
    """Relative to the gradient's norm by a few units of the type; a longer chain of layers would add more."""
    loss, gradient = gradients(made(Net, precision=precision), *batch())
    exact_loss, exact = gradients(made(Net, precision="float64"), *batch())
    apart = float((gradient - exact).norm() / exact.norm())
    assert abs(loss - exact_loss) < 16 * UNIT[precision]
    assert apart < 16 * UNIT[precision]
    if precision != "float32":
        assert apart > UNIT[precision] / 16  # it is computed in the type


@pytest.mark.parametrize(
    ("precision", "flat", "seen"),
    [
        ("float32", torch.float32, [torch.float32, torch.float32]),
        ("bfloat16", torch.float32, [torch.float32, torch.bfloat16]),
        ("float16", torch.float32, [torch.float32, torch.float16]),
        ("float64", torch.float64, [torch.float64, torch.float64]),
    ],
)
def test_parameters_gradients_and_products_have_their_types(
    precision: str, flat: torch.dtype, seen: list[torch.dtype]
) -> None:
    """What agents exchange is float32 but for float64; products have the type asked for."""
    executor = made(Net, precision=precision)
    executor.inference_and_backprop(*batch())
    assert executor.parameters.dtype == executor.gradients.dtype == executor.buffers.dtype == flat
    assert executor.module.seen == seen
    executor.evaluate(*batch())
    assert executor.module.seen == [flat, flat]  # evaluations have the parameters' own
    assert {value.dtype.name for name, value in executor.state_dict().items() if "num" not in name} == {
        str(flat).removeprefix("torch.")
    }


Named = namedtuple("Named", ["scores", "shape"])
FORMS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]] = {
    "tensor": (lambda scores: scores, lambda output: output),
    "nested": (lambda scores: {"heads": ([scores], 3)}, lambda output: output["heads"][0][0]),
    "named": (lambda scores: Named(scores, scores.shape), lambda output: output.scores),
}


class Giving(Net):
    """The scores in a form of their own."""

    def __init__(self, give: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.give = give

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.give(super().forward(inputs))


@pytest.mark.parametrize("form", FORMS)
def test_a_loss_sees_scores_in_float32(form: str) -> None:
    """Also one of the user's own, which no list of PyTorch's knows, wherever in an output they are."""
    give, take = FORMS[form]

    def loss(output: Any, labels: torch.Tensor) -> torch.Tensor:
        scores = take(output)
        assert scores.dtype == torch.float32
        return (scores.logsumexp(1) - scores.gather(1, labels[:, None])[:, 0]).mean()

    executor = made(lambda: Giving(give), loss=FunctionLoss(loss), precision="bfloat16")
    assert gradients(executor, *batch())[0] == pytest.approx(
        made(Net, precision="bfloat16").inference_and_backprop(*batch()), rel=1e-6
    )


# -- float16 -----------------------------------------------------------------------------------------------


def test_gradients_that_float16_cannot_hold_are_scaled() -> None:
    """A loss of 1e-6 times the usual one has gradients that float16 rounds to zero without a scale."""
    small = FunctionLoss(
        lambda scores, labels: 1e-6 * nn.functional.cross_entropy(scores, labels), classifies=True
    )
    _, gradient = gradients(made(Net, loss=small, precision="float16"), *batch())
    _, exact = gradients(made(Net, loss=small, precision="float64"), *batch())
    assert float((gradient - exact).norm() / exact.norm()) < 16 * UNIT["float16"]


def test_a_scale_that_is_too_large_is_halved_and_the_batch_computed_again() -> None:
    """The gradient is there all the same; random numbers and running statistics are those of one pass."""
    large = FunctionLoss(lambda scores, labels: 1e3 * nn.functional.cross_entropy(scores, labels))
    executor = made(Net, loss=large, precision="float16", of={"dropout": 0.5})
    assert executor._precision.scale is not None
    _, gradient = gradients(executor, *batch())
    assert executor._precision.scale.value < 2**16
    again = made(Net, loss=large, precision="float16", of={"dropout": 0.5})
    assert again._precision.scale is not None
    again._precision.scale.value = executor._precision.scale.value  # at once
    _, first = gradients(again, *batch())
    assert torch.equal(gradient, first)
    assert torch.equal(executor.buffers, again.buffers)
    assert [int(counter) for counter in executor.counters] == [1]
    assert np.array_equal(executor.random_state()[16:], again.random_state()[16:])


def test_the_scale_grows_after_many_passes_and_is_part_of_the_state() -> None:
    """After 2,000 passes without an overflow it doubles; what goes on from a state has the same."""
    scale = LossScale()
    for _ in range(GROWS_AFTER):
        assert scale.fits(torch.ones(3), 1.0)
        scale.grow()
    assert scale.value == 2**17
    assert not scale.fits(torch.tensor([1.0, float("inf")]), 1.0)
    assert scale.value == 2**16
    executor, other = made(Net, precision="float16"), made(Net, precision="float16")
    assert executor._precision.scale is not None and other._precision.scale is not None
    executor._precision.scale.value = 2.0**9
    executor.inference_and_backprop(*batch())
    other.set_random_state(executor.random_state())
    assert vars(other._precision.scale) == {"value": 2.0**9, "_passes": 1}
    assert other._passes == 1


def test_a_loss_that_is_no_number_ends_the_search() -> None:
    """Nothing is computed again for ever: the run sees the loss, and ends."""
    nothing = FunctionLoss(lambda scores, labels: scores.sum() * float("nan"))
    executor = made(Net, loss=nothing, precision="float16")
    assert np.isnan(executor.inference_and_backprop(*batch()))
    assert executor._precision.scale is not None and executor._precision.scale.value == 2**16


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: made(Net, precision="tf32"), "a type of NVIDIA's graphics processors"),
        (lambda: made(Net, precision="tf32", device=GPUDevice()), "PyTorch finds no GPU here"),
        (lambda: made(Net, precision="half"), "did you mean 'float16'"),
        (lambda: made(Net, precision=torch.bfloat16), "did you mean 'bfloat16'"),
        (
            lambda: made(nn.Sequential(nn.Flatten(), nn.Linear(128, 5).double()), precision="bfloat16"),
            "the model's 1.weight is of torch.float64: convert the model with .float",
        ),
    ],
)
def test_what_cannot_be_computed_so_is_refused(make: Callable[[], object], said: str) -> None:
    """By the precision's name, with what to do."""
    if "no GPU" in said and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigurationError, match=said):
        make()
