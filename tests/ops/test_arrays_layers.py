"""The array operators of layers forwards: ONNX's own cases, products to losses"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays import OPERATORS
from d5ray.ops.catalogue import DOMAIN, GROUPS
from tests.ops.exceptions import parameters, passing
from tests.ops.gradients import forward, moved, on_host
from tests.ops.onnx_cases import Case, check, of_halves, one_node

TYPES = [
    name
    for group in (
        "products", "convolution", "pooling", "normalization", "dropout", "recurrent", "attention",
        "resizing", "losses",
    )
    for name in GROUPS[group]
]  # fmt: skip
CASES = [case for case in one_node() if case.node.type in TYPES]


def place_of(case: Case) -> NodeContext:
    """Dropout's cases drew their masks from NumPy's first generator: given it, they must come out."""
    if case.node.type != "Dropout":
        return case.context
    return replace(case.context, random=np.random.RandomState(0))


@pytest.mark.parametrize("case", parameters("numpy", CASES))
def test_a_case_of_onnx_passes(case: Case, xp: Any) -> None:
    """Every output has the value, type and shape that ONNX says; the inputs are only read."""
    if xp is not np and case.node.type == "Dropout" and "training" in case.name:
        pytest.skip("the mask was drawn on the host")
    outputs = forward(xp, place_of(case), case.inputs)
    check(case, tuple(map(on_host, outputs)))


def test_nearly_all_cases_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """At least 95 %, the others being listed with their reasons."""
    count = passing("numpy", CASES)
    with capsys.disabled():
        print(f"\nONNX's cases of layers under NumPy: {count} of {len(CASES)} pass, {count / len(CASES):.1%}")  # noqa: T201
    assert len(CASES) > 350 and count >= 0.95 * len(CASES)


HALVES = [pytest.param(case, id=case.name) for case in of_halves() if case.node.type in TYPES]
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7}


@pytest.mark.parametrize("case", HALVES)
def test_a_case_of_16_bits_is_near(case: Case, xp: Any) -> None:
    """Of the type that ONNX says, and as near as ONNX's own rounding at every step allows."""
    if xp is not np and any(each is not None and each.dtype.name == "bfloat16" for each in case.inputs):
        pytest.skip("CuPy has no bfloat16")
    outputs = OPERATORS[case.node.type].forward(xp, case.context, moved(xp, case.inputs))
    for expected, output in zip(case.expected, outputs, strict=False):
        if expected is not None:
            assert output.dtype == expected.dtype and output.shape == expected.shape
            allowed = 4 * EPSILON.get(expected.dtype.name, 0)
            np.testing.assert_allclose(
                on_host(output).astype(np.float32), expected.astype(np.float32), rtol=allowed, atol=allowed
            )


def test_every_type_of_the_groups_is_there() -> None:
    """The catalogue promises them; ONNX has a case for each but the one of d5ray's own domain."""
    assert set(TYPES) <= set(OPERATORS)
    assert set(TYPES) - {case.node.type for case in CASES} == {"MeanSquaredError"} and DOMAIN == "d5ray"
