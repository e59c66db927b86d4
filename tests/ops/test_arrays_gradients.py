"""The array operators backwards: every gradient against central differences, in float64 and narrower types"""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from d5ray.ops.arrays import OPERATORS
from d5ray.ops.arrays.known import on_host
from tests.ops.operator_rows import ROWS, WITHOUT_GRADIENT, Array, Row
from tests.ops.shared_rows import STEERING
from tests.ops.test_arrays_onnx import TYPES

STEP = 1e-5
every_type = pytest.mark.parametrize("name", sorted({row.type for row in ROWS}))
WIDTHS = {  # the distance of 1 to the next number, and how many such distances a result may be off
    np.float32: (2.0**-23, 64, 64),
    np.float16: (2.0**-10, 1, 16),
    ml_dtypes.bfloat16: (2.0**-7, 1, 16),
}


def rows(name: str) -> list[Row]:
    """Those of one operator type."""
    return [row for row in ROWS if row.type == name]


def applied(xp: Any, row: Row, inputs: Sequence[Array | None]) -> list[Array]:
    """The outputs under an array module."""
    return [on_host(y) for y in OPERATORS[row.type].forward(xp, row.context, moved(xp, inputs))]


def moved(xp: Any, arrays: Sequence[Array | None]) -> list[Any]:
    return [None if array is None else xp.asarray(array) for array in arrays]


def cotangents(row: Row, outputs: Sequence[Array]) -> list[Array | None]:
    """Random ones, none for integers."""
    generator = row.generator
    return [
        np.asarray(generator.standard_normal(y.shape)).astype(y.dtype) if is_floating(y) else None
        for y in outputs
    ]


def is_floating(x: Array | None) -> bool:
    return x is not None and x.dtype.kind in "fV"


def gradients(
    xp: Any, row: Row, inputs: Sequence[Array | None], given: Sequence[Array | None]
) -> list[Array | None]:
    """What `backward` makes of these gradients of the outputs."""
    operator, on_device = OPERATORS[row.type], moved(xp, inputs)
    outputs = operator.forward(xp, row.context, on_device)
    found = operator.backward(xp, row.context, moved(xp, given), on_device, outputs)
    return [None if each is None else on_host(each) for each in found]


def central_difference(
    row: Row, inputs: Sequence[Array | None], given: Sequence[Array | None], index: int
) -> Array:
    """d⟨given, outputs⟩ / d inputs[index], every element, in NumPy."""
    x = inputs[index]
    assert x is not None
    found = np.zeros(x.shape)
    for place in np.ndindex(x.shape):
        sides = []
        for step in (STEP, -STEP):
            changed = x.copy()
            changed[place] += step
            outputs = applied(np, row, [*inputs[:index], changed, *inputs[index + 1 :]])
            sides.append(outputs)
        found[place] = sum(
            float((dy * (up - down)).sum())
            for dy, up, down in zip(given, *sides, strict=True)
            if dy is not None
        ) / (2 * STEP)
    return found


@pytest.mark.every_case
@every_type
def test_a_gradient_is_the_central_difference(name: str, xp: Any) -> None:
    """For random cotangents, with respect to every element of every floating-point input; none for others."""
    for row in rows(name):
        inputs = row.drawn(np.float64)
        given = cotangents(row, applied(xp, row, inputs))
        found = gradients(xp, row, inputs, given)
        assert len(found) == len(inputs), str(row)
        for index, (x, gradient) in enumerate(zip(inputs, found, strict=True)):
            if x is None or not is_floating(x) or index in STEERING.get(name, ()):
                assert gradient is None, str(row)
                continue
            assert gradient is not None, str(row)
            assert gradient.dtype == x.dtype and gradient.shape == x.shape, str(row)
            close(row, gradient, central_difference(row, inputs, given, index), 1e-6, 1e-8)


@every_type
@pytest.mark.parametrize("width", WIDTHS, ids=lambda width: width.__name__)
def test_narrower_types_are_computed_in_themselves(name: str, width: Any, xp: Any) -> None:
    """Outputs and gradients are of the inputs' type, and as near to float64's as that type allows; 16-bit
    outputs are rounded once, from float32."""
    if xp is not np and width is ml_dtypes.bfloat16:
        pytest.skip("CuPy does not compute with bfloat16")
    epsilon, forward, backward = WIDTHS[width]
    for row in rows(name):
        inputs = row.drawn(width)
        exact = [x.astype(np.float64) if x is not None and is_floating(x) else x for x in inputs]
        outputs, expected = applied(xp, row, inputs), applied(np, row, exact)
        given = cotangents(row, outputs)
        exact_given = [None if dy is None else dy.astype(np.float64) for dy in given]
        found, wanted = gradients(xp, row, inputs, given), gradients(np, row, exact, exact_given)
        for y, exact_y in zip(outputs, expected, strict=True):
            assert y.dtype == (width if is_floating(exact_y) and name != "Cast" else exact_y.dtype)
            close(row, y, exact_y, forward * epsilon, forward * epsilon / 100)
        for x, dx, exact_dx in zip(inputs, found, wanted, strict=True):
            assert (dx is None) == (exact_dx is None)
            if x is not None and dx is not None and exact_dx is not None:
                assert dx.dtype == x.dtype and dx.shape == x.shape
                close(row, dx, exact_dx, backward * epsilon, backward * epsilon)


def close(row: Row, found: Array, exact: Array, rtol: float, atol: float) -> None:
    np.testing.assert_allclose(found.astype(exact.dtype), exact, rtol=rtol, atol=atol, err_msg=str(row))


def test_without_a_gradient_of_the_outputs_there_is_none() -> None:
    """Where nothing depends on the outputs."""
    for row in ROWS:
        inputs = row.drawn(np.float64)
        given: list[Array | None] = [None] * row.outputs
        assert gradients(np, row, inputs, given) == [None] * len(inputs), str(row)


def test_every_type_is_looked_at() -> None:
    """Every type of the catalogue's groups has a row, or is listed among those without a gradient."""
    with_rows = {row.type for row in ROWS}
    assert with_rows | set(WITHOUT_GRADIENT) == set(TYPES)
    assert not with_rows & set(WITHOUT_GRADIENT)


@pytest.mark.parametrize("name", sorted(WITHOUT_GRADIENT))
def test_what_follows_no_input_has_no_gradient(name: str) -> None:
    """None for every input, also where the output is a floating-point number."""
    row = Row(name, (np.ones((2, 3)),))
    found = OPERATORS[name].backward(
        np, row.context, [np.ones((2, 3))], row.drawn(np.float64), [np.ones((2, 3))]
    )
    assert found == (None,)
