"""Claims about the checksum of an array: its formula, what it never misses, and the same on every device"""

import numpy as np
import pytest
import torch

from d5ray.distributed.checkpoints import checksum as module
from d5ray.distributed.checkpoints.checksum import BLOCK, LOW, MULTIPLIER, checksum

SIZES = (1, 2, 3, 1001, 2 * BLOCK, 2 * BLOCK + 1, 8 * BLOCK + 7)


def by_hand(values: np.ndarray) -> int:
    """The formula in Python's integers."""
    data = values.tobytes()
    whole = len(data) // 8
    words = [int.from_bytes(data[8 * at : 8 * at + 8], "little") for at in range(whole)]
    total = 0
    for begin in range(0, len(words) - len(words) % BLOCK + 1, BLOCK):
        block = words[begin : begin + BLOCK]
        total = MULTIPLIER * total + sum(((i + 1) * MULTIPLIER & LOW | 1) * v for i, v in enumerate(block))
    return (MULTIPLIER * total + int.from_bytes(data[8 * whole :], "little")) & LOW


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
@pytest.mark.parametrize("size", SIZES)
def test_it_is_the_formula(size: int, dtype: str) -> None:
    values = (np.random.default_rng(size).standard_normal(size) * 100).astype(dtype)
    assert checksum(values) == by_hand(values)


@pytest.mark.parametrize("size", SIZES)
def test_tensors_of_pytorch_have_that_of_their_bytes(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In host memory as NumPy has it; on a device, whose operations are PyTorch's own, too."""
    tensor = torch.randn(size)
    expected = checksum(tensor.numpy())
    assert checksum(tensor) == expected
    monkeypatch.setattr(module, "on_device", lambda array: isinstance(array, torch.Tensor))
    assert checksum(tensor) == expected
    half = tensor.to(torch.bfloat16)
    found = checksum(half)
    monkeypatch.undo()
    assert checksum(half) == found != expected


def test_no_change_of_one_number_is_missed() -> None:
    """Wherever it is, by one unit in the last place, by its sign, or two numbers that change places."""
    rng = np.random.default_rng(3)
    values = rng.standard_normal(3 * BLOCK + 5).astype(np.float32)
    before = checksum(values)
    for at in (0, len(values) - 1, *rng.integers(len(values), size=60)):
        changed = values.copy()
        changed[at] = np.nextafter(changed[at], np.float32(np.inf))
        assert checksum(changed) != before
        changed[at] = -values[at]
        assert checksum(changed) != before
        changed = values.copy()
        changed[[at, at - 1]] = changed[[at - 1, at]]
        assert checksum(changed) != before
