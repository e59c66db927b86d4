"""Dropout: what it drops, how often, and what comes back"""

from typing import Any

import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from tests.ops.gradients import Array, backward, context, forward, on_host


def inputs_of(ratio: float | None, training: bool = True, size: int = 1000) -> list[Array | None]:
    x = np.random.default_rng(0).standard_normal((size, 4)) + 10
    return [x, None if ratio is None else np.array(ratio), np.array(training)]


@pytest.mark.parametrize("ratio", [None, 0.1, 0.75])
def test_training_drops_as_many_as_asked(ratio: float | None, xp: Any) -> None:
    """The rest is scaled so that the mean stays; the mask says which, and is what comes back."""
    inputs = inputs_of(ratio)
    place = context("Dropout", inputs, outputs=2, random=xp.random.default_rng(3))
    y, mask = (on_host(each) for each in forward(xp, place, inputs)[:2])
    share, x = 0.5 if ratio is None else ratio, inputs[0]
    assert x is not None and mask.dtype == bool
    np.testing.assert_allclose(y, np.where(mask, x / (1 - share), 0))
    assert abs(mask.mean() - (1 - share)) < 4 * np.sqrt(share * (1 - share) / mask.size)


@pytest.mark.parametrize("outputs", [1, 2])
def test_the_gradient_passes_where_the_input_did(outputs: int) -> None:
    """By the mask that was drawn forwards, also where nobody asked for it."""
    inputs = inputs_of(0.25, size=10)
    place = context("Dropout", inputs, outputs=outputs, random=np.random.default_rng(0))
    mask = np.random.default_rng(0).random((10, 4)) >= 0.25
    cotangent = np.arange(40.0).reshape(10, 4)
    found = backward(np, place, inputs, [cotangent, None])
    assert found[0] is not None and found[1:] == [None, None]
    np.testing.assert_allclose(found[0], np.where(mask, cotangent / 0.75, 0))


@pytest.mark.parametrize(
    ("inputs", "more"),
    [(inputs_of(0.5, training=False), {}), (inputs_of(0.5), {"evaluating": True}), (inputs_of(0.0), {}),
     (inputs_of(0.5)[:1], {})],
    ids=["not training", "in use", "ratio 0", "no training_mode"],
)  # fmt: skip
def test_without_training_everything_passes(inputs: list[Array | None], more: dict[str, Any]) -> None:
    """Forwards and backwards, whatever the generator, which is not asked."""
    place = context("Dropout", inputs, outputs=2, **more)
    y, mask = forward(np, place, inputs)
    x = inputs[0]
    assert x is not None and np.array_equal(y, x)
    assert mask.all() and mask.shape == y.shape
    cotangent = np.ones_like(y)
    np.testing.assert_array_equal(backward(np, place, inputs, [cotangent, None])[0], cotangent)


def test_the_same_generator_draws_the_same_mask() -> None:
    """And the next call another one."""
    inputs = inputs_of(0.5)
    masks = []
    for seed in (5, 5, 6):
        place = context("Dropout", inputs, outputs=2, random=np.random.default_rng(seed))
        masks.append(forward(np, place, inputs)[1])
        masks.append(forward(np, place, inputs)[1])
    first, second, again, _, other, _ = masks
    np.testing.assert_array_equal(first, again)
    assert (first != second).any() and (first != other).any()


def test_everything_may_be_dropped() -> None:
    """A ratio of 1 leaves zeros, not divisions by zero; beyond 1 it is an error."""
    inputs = inputs_of(1.0)
    place = context("Dropout", inputs, random=np.random.default_rng(0))
    assert not forward(np, place, inputs)[0].any()
    assert not np.any(backward(np, place, inputs, [np.ones((1000, 4))])[0])
    with pytest.raises(ConfigurationError, match=r"the ratio 1\.5: it must lie between 0 and 1"):
        forward(np, place, inputs_of(1.5))


def test_a_constant_ratio_decides_without_the_device() -> None:
    """What the graph holds need not be read where it is computed."""
    inputs = [inputs_of(None)[0], np.array(np.nan), np.array(False)]
    place = context(
        "Dropout", inputs, constants={1: np.array(1.0), 2: np.array(True)}, random=np.random.default_rng(0)
    )
    assert not forward(np, place, inputs)[0].any()
