"""The array operators forwards: ONNX's own cases"""

from typing import Any

import numpy as np
import pytest

from d5ray.ops.arrays import OPERATORS
from d5ray.ops.arrays.known import on_host
from d5ray.ops.catalogue import GROUPS
from tests.ops.exceptions import parameters, passing
from tests.ops.onnx_cases import Case, check, of_halves, one_node

TYPES = [
    name
    for group in (
        "arithmetic", "comparison", "activations", "softmaxes", "reductions", "selection", "shapes",
        "casting", "constants", "quantization", "regions", "spectra", "sets", "sequences",
    )
    for name in GROUPS[group]
]  # fmt: skip
CASES = [case for case in one_node() if case.node.type in TYPES]
HALVES = [case for case in of_halves() if case.node.type in TYPES]


@pytest.mark.parametrize("case", parameters("numpy", [*CASES, *HALVES]))
def test_a_case_of_onnx_passes(case: Case, xp: Any) -> None:
    """Every output has the value, type and shape that ONNX says; the inputs are only read."""
    if xp is not np and any(array is not None and array.dtype.name == "bfloat16" for array in case.inputs):
        pytest.skip("CuPy does not compute with bfloat16")
    inputs = [None if array is None else xp.asarray(array) for array in case.inputs]
    before = [None if array is None else array.tobytes() for array in case.inputs]
    outputs = OPERATORS[case.node.type].forward(xp, case.context, inputs)
    check(case, tuple(map(on_host, outputs)))
    assert before == [None if array is None else array.tobytes() for array in case.inputs]


@pytest.mark.parametrize("kind", ["32 and 64 bits", "16 bits"])
def test_nearly_all_cases_pass(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At least 95 %, the others being listed with their reasons."""
    cases = {"32 and 64 bits": CASES, "16 bits": HALVES}[kind]
    count = passing("numpy", cases)
    with capsys.disabled():
        print(f"\nONNX's cases in {kind} under NumPy: {count} of {len(cases)} pass, {count / len(cases):.1%}")  # noqa: T201
    assert cases and count >= 0.95 * len(cases)


def test_every_type_of_the_groups_is_there() -> None:
    """The catalogue promises them."""
    assert set(TYPES) <= set(OPERATORS)
