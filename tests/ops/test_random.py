"""Operators that draw, and those that behave otherwise in training, under every framework"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from scipy import stats

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.torch import FACTORIES
from tests.ops.running import RUNS, Array, Arrays, known, place, run

SHAPE = (200, 100)
NUMBERS = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
FRAMEWORKS = ("numpy", "torch", "tensorflow")
in_every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)


def calls(framework: str, context: NodeContext, inputs: Arrays, seeds: tuple[int, ...]) -> list[Arrays]:
    """The outputs after each of these seeds: of PyTorch's generator, or of the context's own."""
    found: list[Arrays] = []
    for seed in seeds:
        if framework == "torch":
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                made = FACTORIES[context.node.type](context)(
                    *(None if x is None else torch.tensor(x) for x in inputs)
                )
            found.append([np.asarray(y) for y in (made if isinstance(made, tuple) else (made,))])
        else:
            seeded = NodeContext(context.node, context.constants, random=np.random.default_rng(seed))
            found.append(RUNS[framework](seeded, inputs, backwards=False).outputs)
    return found


@in_every_framework
@pytest.mark.every_case
@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_have_their_distribution_and_follow_the_seed(kind: str, framework: str) -> None:
    """By Kolmogorov and Smirnov, with no correlation of the halves; equal seeds give equal numbers."""
    inputs: Arrays = [np.zeros(SHAPE, np.float32)] if kind.endswith("Like") else []
    attributes: dict[str, Any] = {"dtype": 11} | ({} if inputs else {"shape": SHAPE})
    normal = "Normal" in kind
    attributes |= {"mean": -2.0, "scale": 3.0} if normal else {"low": -2.0, "high": 3.0}
    one, again, other = (
        each[0] for each in calls(framework, place(kind, inputs, attributes), inputs, (7, 7, 8))
    )
    assert one is not None and other is not None and one.shape == SHAPE and one.dtype == np.float64
    assert normal or (one.min() >= -2 and one.max() < 3)
    assert (
        stats.kstest(one.ravel(), (stats.norm(-2, 3) if normal else stats.uniform(-2, 5)).cdf).pvalue > 1e-3
    )
    assert stats.pearsonr(one[:100].ravel(), one[100:].ravel()).pvalue > 1e-3
    np.testing.assert_array_equal(one, again)
    assert (one != other).mean() > 0.99


@pytest.mark.parametrize("framework", ["numpy", "tensorflow"])
def test_a_seed_of_the_node_repeats_and_a_generator_goes_on(framework: str) -> None:
    """Whole and broken seeds; without any, every call gives others."""
    drawn = [run_once(framework, seed=seed) for seed in (0.5, 0.5, 0.25)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).all()
    context = place("RandomNormal", [], {"shape": (9,)})
    if framework == "numpy":
        first, second = (RUNS["numpy"](context, [], backwards=False).outputs[0] for _ in range(2))
    else:
        from d5ray.ops.tensorflow import FACTORIES as KERNELS  # noqa: PLC0415 - for this alone

        kernel = KERNELS["RandomNormal"](context)
        first, second = (kernel().numpy() for _ in range(2))
    assert first is not None and (first != second).all()


def run_once(framework: str, **attributes: Any) -> Array:
    (found,) = RUNS[framework](
        place("RandomNormal", [], {"shape": (9,), **attributes}), [], backwards=False
    ).outputs
    assert found is not None
    return found


def test_random_numbers_have_the_type_that_is_asked_for() -> None:
    """float32 where nothing is said, and of the input's where there is one; a scalar is an array too."""
    like = np.zeros((2, 3), np.float16)
    for kind, inputs, attributes, dtype, shape in (
        ("RandomUniform", [], {"shape": ()}, np.float32, ()),
        ("RandomNormal", [], {"shape": (2,), "dtype": 16}, ml_dtypes.bfloat16, (2,)),
        ("RandomUniformLike", [like], {}, np.float16, (2, 3)),
    ):  # fmt: skip
        (found,) = RUNS["numpy"](place(kind, inputs, attributes), inputs, backwards=False).outputs
        assert isinstance(found, np.ndarray) and found.dtype == dtype and found.shape == shape


@in_every_framework
@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.9, 1.0])
def test_dropout_lets_a_share_through(ratio: float, framework: str) -> None:
    """x / (1 − ratio) for a share of 1 − ratio, else 0, as the mask says; the gradient likewise."""
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32) + 10
    inputs: Arrays = [x, np.array(ratio, np.float32), np.array(True)]
    context = place("Dropout", inputs, outputs=2)
    for seen in (context, known(context, inputs)):
        (y, mask), (gradient, *_) = RUNS[framework](seen, inputs)
        assert y is not None and mask is not None and gradient is not None and mask.dtype == bool
        scale = 0.0 if ratio == 1 else 1 / (1 - ratio)
        np.testing.assert_allclose(y, x * mask * scale, rtol=1e-6)
        slopes = np.sin(1 + 2.3 * np.arange(x.size)).reshape(SHAPE)
        np.testing.assert_allclose(gradient, slopes * mask * scale, rtol=1e-5, atol=1e-6)
        assert abs(mask.mean() - (1 - ratio)) <= 5 * np.sqrt(ratio * (1 - ratio) / x.size)
    if ratio == 0.3:
        one, again, other = (each[1] for each in calls(framework, context, inputs, (5, 5, 6)))
        np.testing.assert_array_equal(one, again)
        assert one is not None and (one != other).any()


@in_every_framework
@pytest.mark.parametrize("how", ["evaluating", "no training_mode", "training_mode is false"])
def test_without_training_everything_passes(how: str, framework: str) -> None:
    """Forwards and backwards."""
    x = np.random.default_rng(0).random(SHAPE, np.float32)
    inputs: Arrays = [x, np.array(0.5, np.float32), np.array(how == "evaluating")]
    inputs = inputs[:2] if how.startswith("no") else inputs
    context = place("Dropout", inputs, outputs=2, evaluating=how == "evaluating")
    (y, mask), (gradient, *_) = RUNS[framework](context, inputs)
    np.testing.assert_array_equal(y, x)
    assert mask is not None and mask.all() and mask.shape == SHAPE and gradient is not None
    np.testing.assert_allclose(gradient.ravel(), np.sin(1 + 2.3 * np.arange(x.size)), rtol=1e-5, atol=1e-6)


def test_a_ratio_beyond_1_is_refused_and_a_constant_one_is_read_at_home() -> None:
    """What the graph holds need not be read where it is computed."""
    inputs = [np.ones((10, 4)), np.array(1.5), np.array(True)]
    with pytest.raises(ConfigurationError, match=r"ratio 1\.5: it must lie between 0 and 1"):
        run("numpy", "Dropout", *inputs)
    held = place("Dropout", inputs, constants={1: np.array(1.0), 2: np.array(True)})
    (y,) = RUNS["numpy"](held, [inputs[0], np.array(np.nan), np.array(False)], backwards=False).outputs
    assert y is not None and not y.any()


@in_every_framework
@pytest.mark.parametrize("evaluating", [False, True])
def test_batch_normalization_keeps_or_moves_what_ran(evaluating: bool, framework: str) -> None:
    """Training, by the batch's statistics, the variance that of the population; in use, by those that ran."""
    x, mean, variance = (
        np.random.default_rng(0).random((4, 3, 2, 2)),
        np.array([0.1, 0.2, 0.3]),
        np.ones(3) * 4,
    )
    inputs: Arrays = [x, np.ones(3), np.ones(3), mean, variance]
    context = place(
        "BatchNormalization", inputs, {"training_mode": 1, "momentum": 0.8}, 3, evaluating=evaluating
    )
    y, next_mean, next_variance = map(np.asarray, RUNS[framework](context, inputs, backwards=False).outputs)
    of_batch = x.mean((0, 2, 3)), x.var((0, 2, 3))
    used: Any = (mean, variance) if evaluating else of_batch
    wide = [each.reshape(3, 1, 1) for each in used]
    np.testing.assert_allclose(y, (x - wide[0]) / np.sqrt(wide[1] + 1e-5) + 1, rtol=1e-9)
    share = 0 if evaluating else 0.2
    np.testing.assert_allclose(next_mean, (1 - share) * mean + share * of_batch[0], rtol=1e-9)
    np.testing.assert_allclose(next_variance, (1 - share) * variance + share * of_batch[1], rtol=1e-9)


def test_batch_normalization_of_single_values_has_no_variance() -> None:
    """One sample of one element a channel: the bias comes out, and what runs stays finite."""
    x, ones, mean, variance = np.array([[3.0, -1.0]]), np.ones(2), np.array([1.0, 1.0]), np.array([4.0, 9.0])
    for framework in FRAMEWORKS:
        y, next_mean, next_variance = run(
            framework,
            "BatchNormalization",
            x,
            ones,
            ones,
            mean,
            variance,
            outputs=3,
            training_mode=1,
            momentum=0.75,
        )
        np.testing.assert_allclose(y, [[1.0, 1.0]])
        np.testing.assert_allclose(next_mean, [1.5, 0.5])
        np.testing.assert_allclose(next_variance, [3.0, 6.75])
