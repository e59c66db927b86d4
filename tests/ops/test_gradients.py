"""The operators backwards: NumPy's against differences, other frameworks and narrower types beside NumPy's"""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from d5ray.ops.arrays import OPERATORS, convolution
from d5ray.ops.catalogue import GROUPS, TYPES
from d5ray.ops.torch import REFERRED
from tests.ops.operator_rows import ROWS, WITHOUT_GRADIENT, Row
from tests.ops.running import (
    RUNS,
    Array,
    Inputs,
    differentiated,
    is_floating,
    known,
    of_arrays,
    place,
    weights,
)

STEP = 1e-5
KINDS = sorted({row.type for row in ROWS})
every_type = pytest.mark.parametrize("kind", KINDS)
EPSILON = {
    np.float32: 2.0**-23,
    np.float16: 2.0**-10,
    ml_dtypes.bfloat16: 2.0**-7,
}  # from 1 to the next number


def rows(kind: str) -> list[Row]:
    """Those of one operator type."""
    return [row for row in ROWS if row.type == kind]


def central_difference(row: Row, inputs: Inputs, index: int) -> Array:
    """Of the weighted sum of the outputs, with respect to every element of an input, in NumPy."""
    x, count = (
        inputs[index],
        1 if row.type == "BatchNormalization" else row.outputs,
    )  # what runs has no gradient
    assert x is not None
    found = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        sides = []
        for step in (STEP, -STEP):
            changed = x.copy()
            changed[at] += step
            given = [*inputs[:index], changed, *inputs[index + 1 :]]
            sides.append(OPERATORS[row.type].forward(np, row.context, given)[:count])
        found[at] = sum(
            float((weights(up) * (up - down)).sum())
            for up, down in zip(*sides, strict=True)
            if is_floating(up)
        ) / (2 * STEP)
    return found


@pytest.mark.every_case
@every_type
def test_a_gradient_is_the_central_difference(kind: str, xp: Any) -> None:
    """With respect to every element of every floating-point input, in float64; there is none for others."""
    for row in rows(kind):
        inputs = row.drawn(np.float64)
        gradients = of_arrays(row.context, inputs, xp=xp).gradients
        assert len(gradients) == len(inputs), str(row)
        running = (3, 4) if kind == "BatchNormalization" and row.attributes.get("training_mode") else ()
        asked = differentiated(row.context, inputs, running)
        for index, (x, gradient) in enumerate(zip(inputs, gradients, strict=True)):
            if index not in asked:
                assert gradient is None, str(row)
                continue
            assert x is not None and gradient is not None, str(row)
            assert gradient.dtype == x.dtype and gradient.shape == x.shape, str(row)
            expected = central_difference(row, inputs, index)
            np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7, err_msg=str(row))


# What follows from values that only a call knows, or is computed outside of PyTorch: its graph would break.
NOT_WHOLE = frozenset(("Compress", "Dropout", *(
    kind for group in REFERRED for kind in GROUPS[group]
))) - {"GridSample"}  # fmt: skip
# Exported networks hold these floating-point inputs as constants too.
VALUES = {"Clip": (1, 2), "OneHot": (1,), "Pad": (2,), "Resize": (1, 2)}


def frameworks() -> list[Any]:
    """PyTorch with every type always, others with some: they start slowly, and compile."""
    marks = {
        "torch": pytest.mark.every_case,
        "torch compiled": pytest.mark.slow,
        "tensorflow graph": pytest.mark.slow,
    }
    return [
        pytest.param(kind, framework, id=f"{framework}-{kind}", marks=marks.get(framework, ()))
        for framework in RUNS
        for kind in KINDS
        if framework != "numpy"
        and kind != "Dropout"  # each framework draws others
        and (framework != "torch compiled" or kind not in NOT_WHOLE)
    ]


# What PyTorch's own functions do not differentiate with respect to.
CUT: dict[str, dict[str, tuple[int, ...]]] = {
    "torch": {"BatchNormalization": (3, 4)},
    "tensorflow": {"BatchNormalization": (3, 4)},
}


@pytest.mark.parametrize(("kind", "framework"), frameworks())
def test_a_framework_computes_what_the_array_operator_does(kind: str, framework: str) -> None:
    """Outputs and gradients in float64, whether nothing is known when it is built, or constants."""
    cut = CUT[framework.split()[0]].get(kind, ())
    for row in rows(kind):
        inputs = row.drawn(np.float64)
        expected = of_arrays(row.context, inputs)
        for context in (row.context, known(row.context, inputs)):
            if framework in ("torch compiled", "tensorflow graph"):  # which know constants alone
                held = {i: x for i, x in enumerate(inputs) if i in VALUES.get(kind, ()) and x is not None}
                context = replace(context, constants={**known(context, inputs).constants, **held})
            found = RUNS[framework](context, inputs)
            for y, wanted in zip(found.outputs, expected.outputs, strict=True):
                assert y is not None and wanted is not None and y.dtype == wanted.dtype, str(row)
                np.testing.assert_allclose(y, wanted, rtol=2e-7, atol=2e-8, err_msg=str(row))
            for index in differentiated(context, inputs, cut):
                gradient, wanted = (
                    filled(each.gradients[index], inputs[index]) for each in (found, expected)
                )
                message = f"{row}, input {index}"
                np.testing.assert_allclose(gradient, wanted, rtol=2e-7, atol=2e-8, err_msg=message)


def filled(gradient: Array | None, x: Array | None) -> Array:
    """Zeros where nothing depends on it."""
    assert x is not None
    return np.zeros(x.shape) if gradient is None else gradient


# Of each type of elements: how many of its steps results may be off, a part that does not shrink with them,
# and how many steps gradients may be off. NumPy computes 16 bits in float32 and rounds once.
BOUNDS: dict[str, dict[Any, tuple[int, float, int]]] = {
    "numpy": {np.float32: (64, 0.01, 8), np.float16: (1, 0.01, 2), ml_dtypes.bfloat16: (1, 0.01, 2)},
    "torch": {np.float16: (16, 1, 32), ml_dtypes.bfloat16: (16, 1, 32)},
    "tensorflow": {np.float32: (16, 1, 16)},
}
NARROW = [
    pytest.param(kind, framework, width, id=f"{framework}-{width.__name__}-{kind}")
    for framework, widths in BOUNDS.items()
    for width in widths
    for kind in KINDS
    if framework == "numpy" or kind != "Dropout"
]


@pytest.mark.parametrize(("kind", "framework", "width"), NARROW)
def test_narrower_types_are_computed_in_themselves(kind: str, framework: str, width: Any) -> None:
    """Outputs and gradients have the inputs' type, and are as near to float64's as it allows."""
    forward, least, backward = BOUNDS[framework][width]
    for row in rows(kind):
        if framework == "torch" and kind == "AveragePool" and len(row.attributes["kernel_shape"]) == 3:
            continue  # which PyTorch has not in 16 bits
        inputs = row.drawn(width)
        exact = of_arrays(row.context, [x.astype(np.float64) if is_floating(x) else x for x in inputs])  # type: ignore[union-attr]
        found = RUNS[framework](known(row.context, inputs), inputs)
        for y, wanted in zip(found.outputs, exact.outputs, strict=True):
            assert y is not None and wanted is not None
            own = kind != "Cast" and "stash_type" not in row.attributes
            assert not own or y.dtype == (width if is_floating(wanted) else wanted.dtype), str(row)
            near(row, y, wanted, forward * EPSILON[width], least)
        for gradient, wanted in zip(found.gradients, exact.gradients, strict=True):
            if gradient is not None and wanted is not None and wanted.size:
                assert gradient.dtype == width, str(row)
                near(row, gradient, wanted, backward * EPSILON[width], max(1, abs(wanted).max()))


def near(row: Row, found: Array, exact: Array, bound: float, least: float) -> None:
    np.testing.assert_allclose(found.astype(exact.dtype), exact, bound, bound * least, err_msg=str(row))


def test_without_a_gradient_of_the_outputs_there_is_none() -> None:
    """Where nothing depends on the outputs."""
    for row in ROWS:
        inputs, operator = row.drawn(np.float64), OPERATORS[row.type]
        outputs = operator.forward(np, row.context, inputs)
        found = operator.backward(np, row.context, [None] * row.outputs, inputs, outputs)
        assert list(found) == [None] * len(inputs), str(row)


def test_every_type_is_looked_at() -> None:
    """Every type of the catalogue has a row, or gives no gradient."""
    assert set(KINDS) | WITHOUT_GRADIENT == TYPES and not WITHOUT_GRADIENT & set(KINDS)
    x = np.ones((2, 3))
    for kind in sorted(WITHOUT_GRADIENT):
        assert OPERATORS[kind].backward(np, place(kind, [x]), [x], [x], [x]) == (None,), kind


def test_a_wrong_gradient_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is a hundredth too great."""
    right = type(OPERATORS["Sin"]).backward
    wrong: Any = lambda *given: tuple(1.01 * np.asarray(each) for each in right(*given))  # noqa: E731
    monkeypatch.setattr(type(OPERATORS["Sin"]), "backward", wrong)
    with pytest.raises(AssertionError):
        test_a_gradient_is_the_central_difference("Sin", np)


def test_blocks_of_the_batch_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the columns of a convolution would take too much memory, images are taken one after the other."""
    inputs = [np.random.default_rng(0).standard_normal(shape) for shape in ((5, 2, 6, 6), (4, 2, 3, 3), (4,))]
    whole = of_arrays(place("Conv", inputs), inputs)
    monkeypatch.setattr(convolution, "COLUMN_BYTES", 2 * 2 * 9 * 16 * 8)  # two images
    for blocks, expected in zip(of_arrays(place("Conv", inputs), inputs), whole, strict=True):
        for a, b in zip(blocks, expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-10)
