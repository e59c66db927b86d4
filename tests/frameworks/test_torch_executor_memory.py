"""Claims about `use_buffers`: parameters and gradients in memory that is given, such as shared memory."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch.executor import TorchExecutor
from tests.frameworks.torch_executors import Array, random_batch, torch_executor

KINDS = {"float16": np.float16, "float32": np.float32, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16}


class Typed(nn.Module):
    """(batch, 6) to 4 scores with parameters of any type: two layers and a scalar."""

    def __init__(self, kind: str = "float32") -> None:
        super().__init__()
        self.kind: torch.dtype = getattr(torch, kind)
        self.first = nn.Linear(6, 5)
        self.gain = nn.Parameter(torch.tensor(1.5))
        self.last = nn.Linear(5, 4)
        self.to(self.kind)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(self.gain * torch.tanh(self.first(inputs.to(self.kind))))
        return scores


def made(model: Any = Typed, **of: Any) -> TorchExecutor:
    return torch_executor(model, (6,), of=of)


batch = partial(random_batch, (6,), 5)


class Arena:
    """An allocator that keeps what it was asked for and what it gave."""

    def __init__(self, kind: Callable[[str], Any] = KINDS.__getitem__) -> None:
        self.kind = kind
        self.asked: list[tuple[int, str]] = []
        self.given: list[Array] = []

    def __call__(self, count: int, name: str) -> Array:
        self.asked.append((count, name))
        self.given.append(np.full(count, 77, dtype=self.kind(name)))
        return self.given[-1]


def bits(values: Any) -> Array:
    """The bytes of an array or tensor, to compare across names of types."""
    if isinstance(values, torch.Tensor):
        return np.asarray(values.detach().contiguous().view(-1).view(torch.uint8).numpy())
    return np.ascontiguousarray(values).view(np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_gradients_move_with_their_values(kind: str) -> None:
    """For every type: asked for by its name, parameters first; afterwards the memory is the model's."""
    executor, twin = made(kind=kind), made(kind=kind)
    for either in (executor, twin):
        either.inference_and_backprop(*batch(seed=3))
    arena = Arena()
    executor.use_buffers(arena)
    assert arena.asked == [(6 * 5 + 5 + 1 + 5 * 4 + 4, kind)] * 2
    assert executor.parameters.dtype == twin.parameters.dtype
    for found, expected in (("parameters", arena.given[0]), ("gradients", arena.given[1])):
        np.testing.assert_array_equal(bits(getattr(executor, found)), bits(getattr(twin, found)))
        np.testing.assert_array_equal(bits(expected), bits(getattr(twin, found)))
        assert getattr(executor, found).data_ptr() == expected.ctypes.data
    assert twin.gradients.abs().max() > 0


@pytest.fixture
def shared() -> Iterator[list[SharedMemory]]:
    """Two segments of POSIX shared memory."""
    segments = [SharedMemory(create=True, size=4096) for _ in range(2)]
    yield segments
    for segment in segments:
        segment.close()
        segment.unlink()


def over(segment: SharedMemory, kind: str, count: int) -> Array:
    """The first elements of a segment."""
    assert segment.buf is not None
    return np.frombuffer(segment.buf, kind, count)


def test_training_in_shared_memory_is_the_same_training(shared: list[SharedMemory]) -> None:
    """Three steps, bit for bit, seen through a second mapping; the memory can be closed after moving away."""
    executor, twin = made(), made()
    free = iter(shared)
    executor.use_buffers(lambda count, name: over(next(free), name, count))
    for seed in range(3):
        for either in (executor, twin):
            either.inference_and_backprop(*batch(seed))
            either.parameters -= 0.5 * either.gradients
    for segment, expected in zip(shared, (twin.parameters, twin.gradients), strict=True):
        other = SharedMemory(name=segment.name)
        found = over(other, "float32", len(expected)).copy()
        other.close()
        np.testing.assert_array_equal(found, expected.numpy())
    executor.use_buffers(np.empty)
    for segment in shared:
        segment.close()  # raises BufferError where a view is left
    assert torch.equal(executor.parameters, twin.parameters)
    executor.inference_and_backprop(*batch(9))
    twin.inference_and_backprop(*batch(9))
    assert torch.equal(executor.gradients, twin.gradients) and twin.gradients.abs().max() > 0


def test_bfloat16_reaches_the_host_as_the_equal_float32() -> None:
    """Every value is exact, as ml_dtypes converts it; written back it is the same parameter."""
    executor, arena = made(kind="bfloat16"), Arena()
    executor.use_buffers(arena)
    values = executor.numpy_parameters()
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, arena.given[0].astype(np.float32))
    before = bits(executor.parameters).copy()
    executor.parameters[...] = torch.from_numpy(values)
    np.testing.assert_array_equal(bits(executor.parameters), before)
    assert executor.inference(batch()[0]).dtype == np.float32


def misaligned(count: int) -> Array:
    """Its elements begin one byte beside where they should."""
    return np.zeros(4 * count + 8, np.uint8)[1 : 4 * count + 1].view(np.float32)


def read_only(count: int) -> Array:
    memory = np.zeros(count, np.float32)
    memory.flags.writeable = False
    return memory


WHOLE = np.zeros(119, np.float32)
HALVES = itertools.cycle((WHOLE[:60], WHOLE[59:]))
REFUSED: dict[str, tuple[Callable[[int], Any], str]] = {
    "overlapping": (lambda count: next(HALVES), "overlapping memory for parameters and gradients"),
    "too short": (lambda count: np.zeros(count - 1, np.float32), r"shape \(59,\).*of 60 elements"),
    "a matrix": (lambda count: np.zeros((1, count), np.float32), r"shape \(1, 60\)"),
    "wide elements": (lambda count: np.zeros(count), r"type float64.*of 4 bytes"),
    "every second": (lambda count: np.zeros(2 * count, np.float32)[::2], r"strides \(8,\).*contiguous"),
    "read-only": (read_only, r"writable: False"),
    "misaligned": (misaligned, r"aligned"),
    "nothing": (lambda count: None, r"gave a NoneType"),
}


@pytest.mark.parametrize(("memory", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_memory_that_does_not_fit_is_refused(memory: Callable[[int], Any], words: str) -> None:
    """With what was given and what is needed; the executor works on in the memory that it had."""
    executor, twin = made(), made()
    with pytest.raises(ConfigurationError, match=words):
        executor.use_buffers(lambda count, name: memory(count))
    for each in (executor, twin):
        each.inference_and_backprop(*batch())
    assert torch.equal(executor.parameters, twin.parameters)
    assert torch.equal(executor.gradients, twin.gradients)
