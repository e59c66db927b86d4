"""Operators under TensorFlow that draw at random, or behave otherwise in training: the Dropout family"""

from typing import Any

import numpy as np
import pytest

from d5ray.operators.nodes.kernel_factory import Kernel
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext

SHAPE = (200, 100)
DRAWING: tuple[tuple[str, dict[str, Any], float, float], ...] = (
    ("RandomNormal", {"shape": SHAPE, "mean": 3.0, "scale": 0.5}, 3.0, 0.5),
    ("RandomUniform", {"shape": SHAPE, "low": -1.0, "high": 5.0}, 2.0, 6 / np.sqrt(12)),
    ("RandomNormalLike", {"mean": -1.0, "dtype": 11}, -1.0, 1.0),
    ("RandomUniformLike", {}, 0.5, 1 / np.sqrt(12)),
)
every_one = pytest.mark.parametrize(("name", "attributes", "mean", "spread"), DRAWING)


@pytest.fixture(scope="module")
def tf() -> Any:
    from d5ray.ops.tensorflow.library import tf  # noqa: PLC0415

    return tf


def made(
    name: str, inputs: int, outputs: int = 1, random: Any = None, evaluating: bool = False, **more: Any
) -> Kernel:
    from d5ray.ops.tensorflow import FACTORIES  # noqa: PLC0415

    names = tuple(f"x{index}" for index in range(inputs)), tuple(f"y{index}" for index in range(outputs))
    return FACTORIES[name](NodeContext(Node(name, *names, more), random=random, evaluating=evaluating))


def given(tf: Any, name: str) -> list[Any]:
    return [tf.zeros(SHAPE)] if name.endswith("Like") else []


@every_one
def test_numbers_have_the_mean_and_the_spread(
    name: str, attributes: dict[str, Any], mean: float, spread: float, tf: Any
) -> None:
    """Within five standard errors of what the attributes say, in the type that they say."""
    drawn = made(name, len(given(tf, name)), seed=7, **attributes)(*given(tf, name)).numpy()
    assert drawn.shape == SHAPE and drawn.dtype == (
        np.float64 if attributes.get("dtype") == 11 else np.float32
    )
    error = spread / np.sqrt(drawn.size)
    assert abs(drawn.mean() - mean) < 5 * error
    assert abs(drawn.std() - spread) < 5 * error


@every_one
def test_a_seed_repeats_what_is_drawn(
    name: str, attributes: dict[str, Any], mean: float, spread: float, tf: Any
) -> None:
    """The node's own seed, or a generator of NumPy that was seeded; calls go on, in graphs too."""
    count = len(given(tf, name))
    for first, second in (
        (made(name, count, seed=3.0, **attributes), made(name, count, seed=3.0, **attributes)),
        (
            made(name, count, random=np.random.default_rng(5), **attributes),
            made(name, count, random=np.random.default_rng(5), **attributes),
        ),
    ):
        traced = tf.function(second)
        a, b = first(*given(tf, name)).numpy(), first(*given(tf, name)).numpy()
        assert (a != b).mean() > 0.99
        np.testing.assert_array_equal(traced(*given(tf, name)), a)
        np.testing.assert_array_equal(traced(*given(tf, name)), b)


def test_other_seeds_give_other_numbers(tf: Any) -> None:
    """Whole or broken, of the node or of the network, and without any."""
    generators = [np.random.default_rng(seed) for seed in (1, 2)]
    drawn = [
        *(made("RandomUniform", 0, shape=SHAPE, seed=seed)().numpy() for seed in (1.0, 1.5, 2.0)),
        *(made("RandomUniform", 0, shape=SHAPE, random=generator)().numpy() for generator in generators),
        *(made("RandomUniform", 0, shape=SHAPE)().numpy() for _ in range(2)),
    ]
    for index, one in enumerate(drawn):
        for other in drawn[:index]:
            assert (one != other).mean() > 0.99


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.9, 1.0])
def test_dropout_lets_a_share_through(ratio: float, tf: Any) -> None:
    """x / (1 − ratio) where the mask is true (a share of 1 − ratio), else 0; the gradient likewise."""
    dropout = made("Dropout", 3, 2, seed=1)
    x = tf.constant(np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y, mask = dropout(x, tf.constant(ratio), tf.constant(True))
    scale = 0.0 if ratio == 1.0 else 1 / (1 - ratio)
    np.testing.assert_allclose(y, x.numpy() * mask.numpy() * scale, rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(y, x), mask.numpy() * scale, rtol=1e-6)
    assert abs(mask.numpy().mean() - (1 - ratio)) <= 5 * np.sqrt(ratio * (1 - ratio) / x.shape.num_elements())


def test_dropout_lets_everything_through_outside_of_training(tf: Any) -> None:
    """Where the network is only used, where training_mode is left out, and where the graph finds it false."""
    x = tf.random.uniform(SHAPE)
    for dropout, training in (
        (made("Dropout", 3, 2, evaluating=True), True),
        (made("Dropout", 2, 2), None),
        (tf.function(made("Dropout", 3, 2)), False),
    ):
        y, mask = dropout(x, tf.constant(0.5), *([] if training is None else [tf.constant(training)]))
        np.testing.assert_array_equal(y, x)
        assert mask.numpy().all() and mask.shape == SHAPE


def test_batches_are_normalized_by_what_ran_where_the_network_is_only_used(tf: Any) -> None:
    """Whatever training_mode says; what ran stays as it is."""
    x, ones = tf.random.uniform((4, 3, 2, 2)), tf.ones(3)
    mean, variance = tf.constant([0.1, 0.2, 0.3]), tf.constant([1.0, 2.0, 3.0])
    y, *kept = made("BatchNormalization", 5, 3, evaluating=True, training_mode=1)(
        x, ones, ones, mean, variance
    )
    expected = (x.numpy() - mean.numpy().reshape(3, 1, 1)) / np.sqrt(variance.numpy() + 1e-5).reshape(
        3, 1, 1
    ) + 1
    np.testing.assert_allclose(y, expected, rtol=1e-5)
    np.testing.assert_array_equal(kept[0], mean)
    np.testing.assert_array_equal(kept[1], variance)
