"""The operators inside PyTorch's graphs: torch.fx holds each as one call, torch.compile takes them whole"""

from dataclasses import replace
from operator import getitem
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.fx import Graph, GraphModule

from d5ray.ops.catalogue import GROUPS
from d5ray.ops.torch import FACTORIES
from d5ray.ops.torch.types import tensor_of
from tests.ops.onnx_cases import Case, one_node
from tests.ops.torch_case import Array, known, node, one_thread  # noqa: F401 - one thread
from tests.ops.torch_rows import ROWS, Row

# What comes out, or how much of it, follows from values that only a call knows.
ON_ARRAYS = ("quantization", "sequences", "sets", "spectra")  # groups that are computed as NumPy does it
NOT_WHOLE = {
    "Compress": "a condition says how many",
    "NonZero": "the elements say how many",
    **dict.fromkeys(
        ("BitCast", "Col2Im", "DeformConv", "MaxUnpool", "RoiAlign"), "computed as NumPy does it, outside"
    ),
}
# Exported networks hold these floating-point inputs as constants too: a depth, a filling, bounds, scales.
VALUES = {"Clip": (1, 2), "OneHot": (1,), "Pad": (2,), "Range": (0, 1, 2), "Resize": (1, 2)}


def one_of_each_type() -> dict[str, Case]:
    """The first case that ONNX has."""
    return {case.node.type: case for case in reversed(one_node())}


def tensors(arrays: tuple[Array | None, ...]) -> list[Tensor | None]:
    return [None if array is None else tensor_of(np.array(array)) for array in arrays]


def as_module(built: Any, inputs: list[Tensor | None], outputs: int) -> GraphModule:
    """As an executor does it: one call of the built function; every output is taken by its number."""
    graph = Graph()
    arguments = [None if x is None else graph.placeholder(f"x{i}") for i, x in enumerate(inputs)]
    made = graph.call_function(built, tuple(arguments))
    if outputs == 1:
        graph.output((made,))
    else:
        graph.output(tuple(graph.call_function(getitem, (made, i)) for i in range(outputs)))
    return GraphModule(torch.nn.Module(), graph)


def assert_equal(a: Any, b: Any) -> None:
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("case", [pytest.param(case, id=type) for type, case in one_of_each_type().items()])
def test_fx_holds_each_operator_as_one_call(case: Case) -> None:
    """Its generated code computes what the function itself does."""
    inputs, count = tensors(case.inputs), len(case.node.outputs)
    built = FACTORIES[case.node.type](known(case.node, case.inputs))
    module = as_module(built, inputs, count)
    torch.manual_seed(0)
    expected = built(*inputs)
    torch.manual_seed(0)
    assert_equal(
        module(*(x for x in inputs if x is not None)), (expected,) if count == 1 else expected[:count]
    )


@pytest.mark.full
@pytest.mark.parametrize("group", [group for group in GROUPS if group not in ON_ARRAYS])
def test_torch_compile_takes_all_operators_whole(group: str) -> None:
    """All of a group in one graph, without a break, where values that shape an output are constants."""
    chain, expected, given = torch.nn.ModuleList(), [], []
    for case in one_of_each_type().values():
        if case.node.type in GROUPS[group] and case.node.type not in NOT_WHOLE:
            inputs, count = tensors(case.inputs), len(case.node.outputs)
            context = known(case.node, case.inputs)
            values = {i: case.inputs[i] for i in VALUES.get(case.node.type, ()) if context.has_input(i)}
            built = FACTORIES[case.node.type](replace(context, constants={**context.constants, **values}))
            chain.append(as_module(built, inputs, count))
            given.append([x for x in inputs if x is not None])
            outputs = built(*inputs)
            expected.append((outputs,) if count == 1 else outputs[:count])

    def all_of_them(given: list[list[Tensor]]) -> list[Any]:
        return [module(*own) for module, own in zip(chain, given, strict=True)]

    torch._dynamo.reset()
    found = torch.compile(all_of_them, backend="eager", fullgraph=True)(given)
    for a, b in zip(found, expected, strict=True):
        assert_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("row", [pytest.param(row, id=str(row)) for row in ROWS if row.type != "Dropout"])
def test_gradients_go_through_torch_compile(row: Row) -> None:
    """Of every operator: compiled whole, forwards and backwards, it gives what it gives uncompiled."""
    arrays, found = row.drawn(), []
    context = known(node(row.type, arrays, row.outputs, **row.attributes), arrays)
    values = {i: x for i, x in enumerate(arrays) if i in VALUES.get(row.type, ()) and x is not None}
    context = replace(context, constants={**context.constants, **values})
    built = FACTORIES[row.type](context)

    def floating(*inputs: Tensor | None) -> list[Tensor]:
        outputs = built(*inputs)
        return [y for y in (outputs if isinstance(outputs, tuple) else (outputs,)) if y.is_floating_point()]

    torch._dynamo.reset()
    for function in (floating, torch.compile(floating, backend="aot_eager", fullgraph=True)):
        given = tensors(arrays)
        places = [i for i, x in enumerate(row.inputs) if isinstance(x, tuple)]
        drawn = [x.requires_grad_() for i, x in enumerate(given) if i in places and x is not None]
        outputs = function(*given)
        total = torch.stack([y.square().sum() for y in outputs if y.requires_grad]).sum()
        found.append((*outputs, *torch.autograd.grad(total, drawn, allow_unused=True)))
    assert_equal(*found)
