"""ONNX's own cases of the operators under every framework: values, types and shapes as ONNX says"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch

from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.arrays import OPERATORS
from d5ray.ops.catalogue import TYPES
from d5ray.ops.torch import FACTORIES
from tests.ops.onnx_cases import Case, check, listed, of_halves, one_node
from tests.ops.running import RUNS, Found, known, of_arrays, of_tensorflow, of_torch

# From 1 to the next number of 16 bits: as many of these an output may be off as ONNX's own reference, which
# rounds after every operation.
STEPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
ROUNDED = {"numpy": 0, "torch": 2, "tensorflow": 2}


def in_cupy(context: NodeContext, inputs: Any, backwards: bool) -> Found:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    return of_arrays(context, inputs, backwards, cupy)


FRAMEWORKS: Mapping[str, tuple[str, Callable[..., Found]]] = {
    "numpy": ("numpy", of_arrays), "cupy": ("numpy", in_cupy),
    "torch": ("torch", of_torch), "torch on a GPU": ("torch", partial(of_torch, device="cuda")),
    "tensorflow": ("tensorflow", of_tensorflow),
    "tensorflow graph": ("tensorflow", RUNS["tensorflow graph"]),
    "tensorflow graph of an open batch": ("tensorflow", partial(of_tensorflow, traced=True, opened=True)),
}  # fmt: skip
MARKS: Mapping[str, Any] = {
    "numpy": pytest.mark.every_case, "cupy": pytest.mark.every_case, "torch": pytest.mark.every_case,
    "torch on a GPU": pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that PyTorch can use"),
    "tensorflow graph": pytest.mark.full,
}  # fmt: skip


@cache
def cases(framework: str) -> list[Case]:
    """All, those of 16 bits with the tolerance of the framework's steps."""
    found = list(one_node())
    for case in of_halves():
        step = max(STEPS.get(x.dtype.name, 0) for x in (*case.inputs, *case.expected) if x is not None)
        near = step * (4 if case.node.type == "Attention" else ROUNDED[framework])
        found.append(replace(case, rtol=max(case.rtol, near), atol=max(case.atol, near)))
    return found


@pytest.mark.parametrize(
    ("framework", "kind"),
    [
        pytest.param(framework, kind, id=f"{framework}-{kind}", marks=MARKS.get(framework, ()))
        for framework in FRAMEWORKS
        for kind in sorted({case.node.type for case in one_node()})
    ],
)
def test_the_cases_of_a_type_pass(framework: str, kind: str) -> None:
    """Every output of those that are not listed has the value, type and shape that ONNX says."""
    family, run = FRAMEWORKS[framework]
    own = [case for case in cases(family) if case.node.type == kind]
    if "open" in framework:  # that with the most inputs and outputs
        own = [max(own, key=lambda case: (case.name not in listed(family), length(case)))]
    for case in own:
        if framework == "cupy" and any(x is not None and x.dtype.name == "bfloat16" for x in case.inputs):
            continue  # which CuPy has not
        for context in contexts(framework, case):
            if case.name in listed(family):
                with pytest.raises(AssertionError):
                    check(case, tuple(run(context, case.inputs, backwards=False).outputs))
            else:
                check(case, tuple(run(context, case.inputs, backwards=False).outputs))


def length(case: Case) -> int:
    return len(case.node.inputs) + len(case.node.outputs)


def contexts(framework: str, case: Case) -> list[NodeContext]:
    """With nothing known of the node but itself, and with all that a network holds."""
    context = case.context
    if case.node.type == "Dropout" and framework in ("numpy", "cupy"):  # ONNX drew by NumPy's first generator
        context = replace(context, random=np.random.RandomState(0))
    made = tuple(None if x is None else TensorDescriptor(x.dtype, None) for x in case.expected)
    held = replace(known(context, case.inputs), outputs=made)
    return {"torch": [context, held], "tensorflow": [context]}.get(
        framework, [held if "graph" in framework else context]
    )


@pytest.mark.parametrize("framework", ROUNDED)
def test_nearly_all_cases_pass(framework: str) -> None:
    """At least 95 %, the others being listed with their reasons; of every type there is one."""
    every = [case.name for case in cases(framework)]
    failing = listed(framework).keys()
    assert failing <= set(every) and len(failing) <= 0.05 * len(every) and len(every) > 750
    assert len(TYPES - {case.node.type for case in one_node()}) == 5  # what draws, and d5ray's own
    assert set(FACTORIES) == set(OPERATORS) == TYPES


def test_a_case_that_is_wrong_is_seen() -> None:
    """A value that is a hundredth off fails."""
    case = next(case for case in one_node() if case.node.type == "Softplus")
    worse = replace(case, expected=tuple(np.multiply(x, 1.01, dtype=x.dtype) for x in case.expected))
    with pytest.raises(AssertionError):
        check(worse, tuple(of_torch(case.context, case.inputs).outputs))
