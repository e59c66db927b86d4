"""ONNX's own cases under PyTorch: all types of the catalogue, on CPU and GPU"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from d5ray.ops.catalogue import TYPES
from d5ray.ops.torch import FACTORIES
from tests.ops.exceptions import listed, parameters, passing
from tests.ops.onnx_cases import Case, check, of_halves, one_node
from tests.ops.torch_case import call, known, one_thread, unknown  # noqa: F401 - one thread

EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # the distance of 1 to the next number
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch can use")


def check_on(device: str, case: Case) -> None:
    """With nothing known of the node, and with all that an exported network holds."""
    for context in (unknown(case.node, case.inputs), known(case.node, case.inputs)):
        check(case, call(context, case.inputs, device))


def halves() -> list[Case]:
    """Cases of 16-bit types; a result may be two of their steps off, for it is rounded more than once."""
    found = []
    for case in of_halves():
        arrays = [array for array in (*case.inputs, *case.expected) if array is not None]
        step = max(EPSILONS.get(array.dtype.name, 0.0) for array in arrays)
        found.append(replace(case, rtol=max(case.rtol, 2 * step)))
    return found


@pytest.mark.parametrize("case", parameters("torch", [*one_node(), *halves()]))
def test_a_case_of_onnx_passes(case: Case) -> None:
    """Every output has the value, type and shape that ONNX says."""
    check_on("cpu", case)


@needs_gpu
@pytest.mark.parametrize("type", sorted(TYPES))
def test_the_cases_of_a_type_pass_on_a_gpu(type: str) -> None:
    """All of them, of all types of elements."""
    for case in (*one_node(), *halves()):
        if case.node.type == type and case.name not in listed("torch"):
            check_on("cuda", case)


@pytest.mark.parametrize("kind", ["32 and 64 bits", "16 bits"])
def test_nearly_all_cases_pass(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At least 95 %, the others being listed with their reasons."""
    cases = {"32 and 64 bits": one_node(), "16 bits": of_halves()}[kind]
    count = passing("torch", cases)
    with capsys.disabled():
        print(  # noqa: T201
            f"\nONNX's cases in {kind} under PyTorch: {count} of {len(cases)} pass, {count / len(cases):.1%}"
        )
    assert len({case.node.type for case in one_node()}) > 120 and count >= 0.95 * len(cases)


def test_every_type_of_the_catalogue_has_a_builder() -> None:
    """And there are no others."""
    assert set(FACTORIES) == TYPES


def test_a_case_that_is_wrong_is_seen() -> None:
    """The check is not blind: a value that is a hundredth off fails."""
    case = next(case for case in one_node() if case.node.type == "Softplus")
    worse = replace(
        case, expected=tuple(np.multiply(array, 1.01, dtype=array.dtype) for array in case.expected)
    )
    with pytest.raises(AssertionError):
        check_on("cpu", worse)
