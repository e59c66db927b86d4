"""The operators under TensorFlow, backwards: the tape's gradients against central differences"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from d5ray.operators.nodes.kernel_factory import Kernel
from d5ray.ops.catalogue import TYPES
from tests.ops.shared_rows import STEERING
from tests.ops.tensorflow_rows import ROWS, WITHOUT_GRADIENT, Array, Row

STEP = 1e-5
every_row = pytest.mark.parametrize("row", [pytest.param(row, id=str(row)) for row in ROWS])


@pytest.fixture(scope="module")
def builders() -> Any:
    """The table; TensorFlow is imported when the first test asks for it."""
    from d5ray.ops.tensorflow import FACTORIES  # noqa: PLC0415

    return FACTORIES


@pytest.fixture(scope="module")
def tf() -> Any:
    from d5ray.ops.tensorflow.library import tf  # noqa: PLC0415

    return tf


def listed(outputs: Any) -> list[Any]:
    """The outputs of floating-point types: those that a gradient comes from."""
    every = outputs if isinstance(outputs, tuple) else (outputs,)
    return [y for y in every if y is not None and y.dtype.is_floating]


def weighted_sum(tf: Any, built: Kernel, inputs: Sequence[Any]) -> Any:
    """⟨cotangents, outputs⟩ for cotangents that are always the same; infinite outputs are left out."""
    total = tf.zeros((), tf.float64)
    for y in listed(built(*inputs)):
        finite = tf.where(tf.math.is_finite(y), y, tf.zeros_like(y))
        weights = tf.sin(
            1.0 + 2.3 * tf.range(tf.size(y), dtype=tf.float64)
        )  # a known number for every element
        total += tf.reduce_sum(tf.cast(finite, tf.float64) * tf.reshape(weights, tf.shape(y)))
    return total


def gradients(tf: Any, built: Kernel, row: Row, dtype: Any, graph: bool = False) -> list[Array | None]:
    """With respect to every input, None where there is none, from the tape."""
    drawn = row.drawn(dtype)
    places = [index for index, x in enumerate(drawn) if x is not None and x.dtype.kind == "f"]

    def run(*given: Any) -> Any:
        inputs = [None if x is None else tf.constant(x) for x in drawn]
        for index, tensor in zip(places, given, strict=True):
            inputs[index] = tensor
        with tf.GradientTape() as tape:
            tape.watch(given)
            total = weighted_sum(tf, built, inputs)
        return tape.gradient(total, given)

    found: list[Array | None] = [None] * len(drawn)
    given = [tf.constant(drawn[index]) for index in places]
    for index, each in zip(places, tf.function(run)(*given) if graph else run(*given), strict=True):
        found[index] = None if each is None else tf.convert_to_tensor(each).numpy()
    return found


def slope(tf: Any, built: Kernel, inputs: list[Array | None], index: int, direction: Array) -> float:
    """Of the weighted sum, as one input goes into a direction: the central difference in float64."""
    x, changed = inputs[index], list(inputs)
    assert x is not None
    sides = []
    for step in (STEP, -STEP):
        changed[index] = x + step * direction
        tensors = [None if each is None else tf.constant(each) for each in changed]
        sides.append(float(weighted_sum(tf, built, tensors)))
    return (sides[0] - sides[1]) / (2 * STEP)


def directions(x: Array) -> list[Array]:
    """Every element by itself where there are few, all of them at random four times where there are more."""
    if x.size <= 6:
        basis: Array = np.eye(x.size).reshape(x.size, *x.shape)
        return list(basis)
    generator = np.random.default_rng(x.size)
    return [np.asarray(generator.standard_normal(x.shape)) for _ in range(4)]


def numbers_that_steer(row: Row) -> frozenset[int]:
    """Floating-point inputs with respect to which there is no gradient: they say how, not what."""
    steering = {**STEERING, "BatchNormalization": (3, 4), "Dropout": (1,), "Resize": (1, 2)}
    return frozenset(steering.get(row.type, ()))


@every_row
def test_a_gradient_is_the_central_difference(row: Row, tf: Any, builders: Any) -> None:
    """For fixed cotangents, with respect to every floating-point input, in float64."""
    built, inputs = builders[row.type](row.context()), row.drawn()
    for index, (x, gradient) in enumerate(zip(inputs, gradients(tf, built, row, np.float64), strict=True)):
        if x is None or x.dtype.kind != "f" or index in numbers_that_steer(row):
            continue
        for direction in directions(x):
            found = 0.0 if gradient is None else float((gradient * direction).sum())
            expected = slope(tf, built, inputs, index, direction)
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@every_row
def test_gradients_in_float32_are_those_of_float64(row: Row, tf: Any, builders: Any) -> None:
    """Within float32's precision: TensorFlow has kernels of its own for float32 in some places."""
    wide = gradients(tf, builders[row.type](row.context()), row, np.float64)
    narrow = gradients(tf, builders[row.type](row.context(np.float32)), row, np.float32)
    for index, (found, expected) in enumerate(zip(narrow, wide, strict=True)):
        if index in numbers_that_steer(row):
            continue
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@every_row
def test_gradients_in_a_graph_are_those_of_the_calls(row: Row, tf: Any, builders: Any) -> None:
    """The same function, traced, gives the same gradients."""
    built = builders[row.type](row.context())
    eager = gradients(tf, built, row, np.float64)
    for found, expected in zip(gradients(tf, built, row, np.float64, graph=True), eager, strict=True):
        assert (found is None) == (expected is None)
        if found is not None and expected is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_every_type_is_looked_at() -> None:
    """Every type of the catalogue has a row, or is listed among those without a gradient."""
    with_rows = {row.type for row in ROWS}
    assert with_rows | WITHOUT_GRADIENT == TYPES
    assert not with_rows & WITHOUT_GRADIENT
