"""Operators under PyTorch of integer types: as of float64, wherever ONNX has them of these types"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from tests.ops.torch_case import Array, call, known, node, one_thread  # noqa: F401 - one thread
from tests.ops.torch_rows import ROWS, Row

TYPES = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "bool")
ROUNDED = ("Div", "Gemm", "ReduceL2", "ReduceMean", "Resize", "Shrink")  # which no float64 shows
OF_A_TYPE = {"OneHot": 2, "Where": 1}  # the input that has the output's type, where it is not the first


def allowed(row: Row) -> Iterator[str]:
    """The integer types that ONNX has the operator of."""
    if onnx.defs.has(row.type):
        schema = onnx.defs.get_schema(row.type)
        constraints = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}
        name = schema.inputs[OF_A_TYPE.get(row.type, 0)].type_str
        yield from (each for each in TYPES if f"tensor({each})" in constraints.get(name, [name]))


def whole_numbers(row: Row, *kinds: str) -> list[Array | None]:
    """Inputs of integers from 1 to 3 in place of real numbers, made of these types one after the other."""
    random, found = np.random.default_rng(0), []
    for given in row.inputs:
        x: Any = random.integers(1, 4, given) if isinstance(given, tuple) else given
        if isinstance(given, tuple) or (x is not None and x.dtype.kind == "f"):
            for kind in kinds:
                x = np.round(x).astype(kind)
        found.append(x)
    return found


@pytest.mark.parametrize("row", [pytest.param(row, id=str(row)) for row in ROWS if any(allowed(row))])
def test_integers_are_computed_as_real_numbers(row: Row) -> None:
    """The same values where no rounding and no overflow comes in, in the type of the input."""
    for kind in allowed(row):
        inputs, real = whole_numbers(row, kind), whole_numbers(row, kind, "float64")
        one = node(row.type, inputs, row.outputs, **row.attributes)
        found = call(known(one, inputs), inputs)
        if row.type not in ROUNDED and kind != "bool":
            for a, b in zip(found, call(known(one, real), real), strict=True):
                np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))
        if row.type not in ("Cast", "CastLike"):
            assert found[0].dtype == kind
