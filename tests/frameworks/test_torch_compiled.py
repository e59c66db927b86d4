"""Claims about `compile`: the results of the module as it is, and no wrong gradients."""

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.flat_buffers import Slot
from tests.frameworks.torch_executors import Array, random_batch, torch_executor

# of parts of PyTorch's compiler that PyTorch itself takes out
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def layers() -> nn.Module:
    """(batch, 6) to 4 scores, with Dropout and BatchNorm."""
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 4))


made = partial(torch_executor, shape=(6,))
batch = partial(random_batch, (6,))


@pytest.mark.slow
def test_steps_are_those_without_compilation() -> None:
    """Loss, gradients, statistics and what Dropout draws, for two sizes; also when the buffers have moved."""
    executor, other = made(layers), made(layers, compile=True)
    given: list[Array] = []

    def allocate(elements: int, kind: str) -> Array:
        given.append(np.empty(elements, kind))
        return given[-1]

    for step, size in enumerate((10, 10, 7, 10)):
        if step == 3:
            other.use_buffers(allocate)
        loss = executor.inference_and_backprop(*batch(size))
        assert other.inference_and_backprop(*batch(size)) == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(other.gradients, executor.gradients, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(other.buffers, executor.buffers, rtol=1e-5, atol=1e-6)
        assert [int(each) for each in other.counters] == [step + 1]
        for each in (executor, other):
            each.parameters.sub_(0.1 * each.gradients)
    assert other.parameters.data_ptr() == given[0].ctypes.data
    assert other.gradients.data_ptr() == given[1].ctypes.data
    assert executor.state_dict().keys() == other.state_dict().keys()


def test_gradients_that_the_compiler_gets_wrong_are_an_error() -> None:
    """One tensor of zeros among right ones is found; rounding is not, nor a gradient that is only that."""
    from d5ray.frameworks.torch.compiled import CompiledForward  # noqa: PLC0415 - imports PyTorch's compiler

    compiled = CompiledForward(nn.Linear(2, 2))
    slots = (Slot("first", 0, (3,)), Slot("tiny", 3, (2,)), Slot("last", 5, (4,)))
    right = torch.tensor([1e-2, -2e-2, 1e-2, 1e-9, 1e-9, 1.0, 2.0, 3.0, 4.0])
    compiled.compare(slots, right, right * (1 + 1e-5), half=False)
    compiled.compare(slots, right, right * (1 + 1e-2), half=True)
    rounded = right.clone()
    rounded[3:5] = -1e-9
    compiled.compare(slots, right, rounded, half=False)
    wrong = right.clone()
    wrong[:3] = 0
    with pytest.raises(
        ConfigurationError, match=r"gradients: that of first has the norm 0, .* leave compile"
    ):
        compiled.compare(slots, right, wrong, half=False)


@pytest.mark.slow
def test_a_model_is_compiled_right_or_refused() -> None:
    """LeNet: PyTorch 2.13 gives its convolutions no gradients for this batch, which must not go unseen."""
    executor, plain = (torch_executor("lenet", (1, 28, 28), 10, compile=each) for each in (True, False))
    inputs, labels = random_batch((1, 28, 28), 16, classes=10)
    plain.inference_and_backprop(inputs, labels)
    try:
        executor.inference_and_backprop(inputs, labels)
    except ConfigurationError as error:
        assert "wrong gradients" in str(error)
    else:
        torch.testing.assert_close(executor.gradients, plain.gradients, rtol=1e-3, atol=1e-6)


@pytest.mark.full
def test_a_model_that_cannot_be_compiled_is_an_error_that_says_what_to_do() -> None:
    """Here for want of a C++ compiler."""
    import torch._inductor.config as inductor  # noqa: PLC0415 - imports PyTorch's compiler

    torch._dynamo.reset()
    executor = made(lambda: nn.Sequential(nn.Linear(6, 9), nn.Sigmoid(), nn.Linear(9, 4)), compile=True)
    changes = {"cpp.cxx": (None, "no-such-compiler"), "force_disable_caches": True}
    # Such a change of PyTorch's settings is taken back whole, which setting attributes is not.
    with inductor.patch(changes), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(ConfigurationError, match=r"cannot compile the model, .* leave compile out"):
            executor.inference_and_backprop(*batch())
    assert not torch.compiler.config.force_disable_caches
