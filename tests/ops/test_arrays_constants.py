"""Tensors that are made: ranges, random numbers, and shapes that the network holds"""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays import OPERATORS

UNIFORM = {"low": -2.0, "high": 3.0}
NORMAL = {"mean": -2.0, "scale": 3.0}


def drawn(kind: str, *inputs: Any, random: Any = None, **attributes: Any) -> Any:
    node = Node(kind, tuple(f"x{index}" for index in range(len(inputs))), ("y",), attributes)
    return OPERATORS[kind].forward(np, NodeContext(node, random=random), [np.asarray(x) for x in inputs])[0]


@pytest.mark.parametrize("kind", ["RandomUniform", "RandomUniformLike"])
def test_uniform_numbers_are_uniform(kind: str) -> None:
    """By Kolmogorov and Smirnov, 20,000 of them; all lie in [low, high)."""
    x = many(kind, UNIFORM)
    assert x.min() >= -2 and x.max() < 3
    assert stats.kstest(x.ravel(), stats.uniform(-2, 5).cdf).pvalue > 0.001


@pytest.mark.parametrize("kind", ["RandomNormal", "RandomNormalLike"])
def test_normal_numbers_are_normal(kind: str) -> None:
    """By the same test, also the halves apart, whose correlation is none."""
    x = many(kind, NORMAL)
    assert stats.kstest(x.ravel(), stats.norm(-2, 3).cdf).pvalue > 0.001
    assert stats.pearsonr(x[0], x[1]).pvalue > 0.001


def many(kind: str, attributes: Mapping[str, Any]) -> Any:
    generator = np.random.default_rng(7)
    if kind.endswith("Like"):
        return drawn(kind, np.zeros((2, 10000)), random=generator, **attributes)
    x = drawn(kind, random=generator, shape=(2, 10000), dtype=11, **attributes)
    assert x.dtype == np.float64
    return x


def test_what_is_drawn_follows_the_generator_or_the_seed() -> None:
    """Equal generators give equal numbers, one generator goes on; with a seed every call gives the same."""
    kind, shape = "RandomNormal", (3,)
    generator = np.random.default_rng(1)
    first, second = (drawn(kind, random=generator, shape=shape) for _ in range(2))
    np.testing.assert_array_equal(first, drawn(kind, random=np.random.default_rng(1), shape=shape))
    assert (first != second).all()
    seeded = [drawn(kind, shape=shape, seed=seed) for seed in (0.5, 0.5, 0.25)]
    np.testing.assert_array_equal(seeded[0], seeded[1])
    assert (seeded[0] != seeded[2]).all()


def test_random_numbers_have_the_type_that_is_asked_for() -> None:
    """float32 where nothing is said, and of the input's where there is one; a scalar is an array too."""
    generator = np.random.default_rng(1)
    like = np.zeros((2, 3), np.float16)
    for found, dtype, shape in (
        (drawn("RandomUniform", random=generator, shape=()), np.float32, ()),
        (drawn("RandomNormal", random=generator, shape=(2,), dtype=16), ml_dtypes.bfloat16, (2,)),
        (drawn("RandomUniformLike", like, random=generator), np.float16, (2, 3)),
        (drawn("RandomNormalLike", like, random=generator, dtype=11), np.float64, (2, 3)),
    ):
        assert isinstance(found, np.ndarray) and found.dtype == dtype and found.shape == shape


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_range_of_16_bits_is_rounded_once(dtype: Any) -> None:
    """Steps of 1 beyond the numbers that the type can tell apart still advance."""
    start, limit, delta = (np.array(each, dtype) for each in (0, 3000, 1))
    found = drawn("Range", start, limit, delta)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.arange(float(limit)).astype(dtype))


@pytest.mark.parametrize(
    ("start", "limit", "delta"), [(10, 4, -2), (1, 5, 2), (5, 1, 2), (0, 7, 3), (-4, 3, 1)]
)
def test_ranges_of_integers_are_python_ranges(start: int, limit: int, delta: int) -> None:
    """Of every integer type that ONNX counts in."""
    for dtype in (np.int16, np.int32, np.int64):
        found = drawn("Range", *(np.array(each, dtype) for each in (start, limit, delta)))
        assert found.dtype == dtype
        assert found.tolist() == list(range(start, limit, delta))


@pytest.mark.parametrize(
    ("attributes", "dtype", "expected"),
    [
        ({"value": np.array([[1, 2]], np.uint8)}, np.uint8, [[1, 2]]),
        ({"value_float": 1.5}, np.float32, 1.5),
        ({"value_floats": (1.5, 2.5)}, np.float32, [1.5, 2.5]),
        ({"value_int": 3}, np.int64, 3),
        ({"value_ints": ()}, np.int64, []),
    ],
)
def test_a_constant_is_what_the_node_says(attributes: Mapping[str, Any], dtype: Any, expected: Any) -> None:
    """Numbers are float32 or int64."""
    found = drawn("Constant", **attributes)
    assert found.dtype == dtype and found.tolist() == expected


def test_what_the_network_holds_is_read_there() -> None:
    """A new shape among the node's constants is not fetched from the device again."""

    class OnDevice:
        ndim = 1

        def get(self) -> Any:
            raise AssertionError("it was fetched")

    node = Node("Reshape", ("x", "shape"), ("y",))
    context = NodeContext(node, constants={1: np.array([3, -1])})
    (found,) = OPERATORS["Reshape"].forward(np, context, [np.zeros((2, 6)), OnDevice()])
    assert found.shape == (3, 4)
