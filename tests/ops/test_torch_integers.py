"""Operators under PyTorch of integer types: as of float64, wherever ONNX has them of these types"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from tests.ops.operator_rows import ROWS, Row
from tests.ops.running import Arrays, known, of_arrays, of_torch, place

TYPES = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "bool")
ROUNDED = (
    "Div",
    "Gemm",
    "GridSample",
    "Mean",
    "ReduceL2",
    "ReduceMean",
    "Resize",
    "Shrink",
)  # no float64 shows it
OF_A_TYPE = {"OneHot": 2, "Where": 1}  # the input that has the output's type, where it is not the first


def constraints(row: Row) -> dict[str, list[str]]:
    """By the schema's names the types that ONNX has the operator of."""
    schema = onnx.defs.get_schema(row.type)
    return {each.type_param_str: list(each.allowed_type_strs) for each in schema.type_constraints}


def type_name(row: Row, index: int) -> str:
    """What the schema calls an input's type; all inputs have the last one's, where their number is open."""
    inputs = onnx.defs.get_schema(row.type).inputs
    return str(inputs[min(index, len(inputs) - 1)].type_str)


def allowed(row: Row) -> Iterator[str]:
    """The integer types that ONNX has the operator of."""
    if onnx.defs.has(row.type):
        name = type_name(row, OF_A_TYPE.get(row.type, 0))
        yield from (each for each in TYPES if f"tensor({each})" in constraints(row).get(name, [name]))


def whole_numbers(row: Row, *kinds: str) -> Arrays:
    """Inputs of integers from 1 to 3 in place of real numbers, made of these types one after the other.

    Where ONNX has real numbers alone, such as a scale beside what it scales, they stay of float64.
    """
    random, found = np.random.default_rng(0), []
    for index, (given, drawn) in enumerate(zip(row.inputs, row.drawn(np.float64), strict=True)):
        name = type_name(row, index)
        most = 2 if row.type == "Einsum" else 3  # whose sums of products an int8 holds
        x: Any = given
        if callable(given) and drawn is not None:
            x = random.integers(1, most, drawn.shape, endpoint=True)
        if callable(given) or (x is not None and x.dtype.kind == "f"):
            taken = constraints(row).get(name, [name])
            for kind in kinds:
                is_taken = f"tensor({kind})" in taken
                x = np.round(x).astype(kind) if is_taken else x.astype("float64")
        found.append(x)
    return found


def computed(row: Row, inputs: Arrays) -> Arrays:
    return of_torch(known(row.context, inputs), inputs, backwards=False).outputs


@pytest.mark.parametrize("type", sorted({row.type for row in ROWS if any(allowed(row))}))
def test_integers_are_computed_as_real_numbers(type: str) -> None:
    """The same values where no rounding and no overflow comes in, in the type of the input."""
    for row in [row for row in ROWS if row.type == type]:
        for kind in allowed(row):
            found = computed(row, whole_numbers(row, kind))
            if type not in ROUNDED and kind != "bool":
                for a, b in zip(found, computed(row, whole_numbers(row, kind, "float64")), strict=True):
                    if type != "Sub" or kind[0] != "u":  # which have no numbers below 0
                        np.testing.assert_array_equal(np.float64(a), np.float64(b), err_msg=str(row))
            made = onnx.defs.get_schema(type).outputs[0].type_str
            if type not in ("Cast", "CastLike") and made == type_name(row, OF_A_TYPE.get(type, 0)):
                assert found[0] is not None and found[0].dtype == kind


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_image_of_bytes_is_sampled_as_by_the_array_operator(mode: str) -> None:
    """At points of real numbers: in wide numbers, then cut off to whole ones."""
    random = np.random.default_rng(0)
    image = random.integers(0, 200, (1, 2, 5, 6)).astype("uint8")
    inputs = [image, random.uniform(-1, 1, (1, 3, 4, 2)).astype("float32")]
    context = place("GridSample", inputs, {"mode": mode})
    found, expected = (run(context, inputs, backwards=False).outputs[0] for run in (of_torch, of_arrays))
    assert found is not None and found.dtype == np.uint8
    np.testing.assert_array_equal(found, expected)
