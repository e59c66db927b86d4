"""PyTorch's gradients of the operators: against central differences in float64"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd.gradcheck import GradcheckError, gradcheck

from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.catalogue import TYPES
from d5ray.ops.torch import FACTORIES
from d5ray.ops.torch.types import tensor_of
from tests.ops.torch_case import known, node, one_thread, unknown  # noqa: F401 - one thread
from tests.ops.torch_rows import ROWS, WITHOUT_GRADIENT, Row

every_row = pytest.mark.parametrize("row", [pytest.param(row, id=str(row)) for row in ROWS])


def function_of(context: NodeContext, row: Row) -> tuple[Callable[..., tuple[Tensor, ...]], list[Tensor]]:
    """The operator from floating-point inputs to such outputs, and these inputs, as gradcheck takes them."""
    built = FACTORIES[row.type](context)
    tensors = [None if x is None else tensor_of(x) for x in row.drawn()]
    places = [i for i, x in enumerate(row.inputs) if isinstance(x, tuple)]

    def function(*floating: Tensor) -> tuple[Tensor, ...]:
        torch.manual_seed(1)  # a Dropout drops the same
        inputs = dict(enumerate(tensors)) | dict(zip(places, floating, strict=True))
        outputs = built(*inputs.values())
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return tuple(y for y in outputs if y is not None and y.is_floating_point())

    return function, [tensors[place].requires_grad_() for place in places]  # type: ignore[union-attr]


@pytest.mark.full
@every_row
def test_gradients_are_central_differences(row: Row) -> None:
    """With respect to every element of every floating-point input, and finite."""
    inputs = row.drawn()
    function, floating = function_of(
        known(node(row.type, inputs, row.outputs, **row.attributes), inputs), row
    )
    assert gradcheck(function, floating)


@every_row
def test_gradients_are_the_same_where_nothing_is_known(row: Row) -> None:
    """For random cotangents: what is decided at every call is what would be decided once."""
    inputs, found = row.drawn(), []
    one = node(row.type, inputs, row.outputs, **row.attributes)
    for place in (known, unknown):
        function, floating = function_of(place(one, inputs), row)
        outputs = [y for y in function(*floating) if y.requires_grad]
        given = [torch.linspace(-1, 2, y.numel(), dtype=y.dtype).reshape(y.shape) for y in outputs]
        found.append(torch.autograd.grad(outputs, floating, given, allow_unused=True))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_every_type_is_looked_at() -> None:
    """All types of the catalogue have a row, but those whose outputs do not follow from real numbers."""
    assert {row.type for row in ROWS} == TYPES - WITHOUT_GRADIENT


@pytest.mark.parametrize("type", ["Hardmax", "ArgMax", "Greater", "Shape", "EyeLike", "NonZero"])
def test_others_cut_the_gradient(type: str) -> None:
    """They give tensors that do not ask for one."""
    inputs = (np.ones((2, 3)),) * (2 if type == "Greater" else 1)
    built = FACTORIES[type](known(node(type, inputs), inputs))
    assert not built(*(tensor_of(x).requires_grad_() for x in inputs)).requires_grad


def test_a_wrong_gradient_is_caught() -> None:
    """A planted one, which is a hundredth too great."""

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(context: object, x: Tensor) -> Tensor:
            return torch.sin(x)

        @staticmethod
        def backward(context: object, *gradients: Tensor) -> Tensor:
            return 1.01 * gradients[0]

    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(GradcheckError):
        gradcheck(Wrong.apply, x)


@pytest.mark.parametrize("type", ["ReduceL2", "LpNormalization", "Sqrt", "Max", "Relu", "Softsign", "Abs"])
def test_gradients_where_there_is_none_are_finite_or_known(type: str) -> None:
    """At 0, PyTorch's subgradients are finite; only that of a root is not, which is infinite."""
    inputs = (np.zeros((2, 2)),) * (2 if type == "Max" else 1)
    tensors = [tensor_of(x).requires_grad_() for x in inputs]
    FACTORIES[type](known(node(type, inputs), inputs))(*tensors).sum().backward()
    for tensor in tensors:
        assert tensor.grad is not None
        assert bool(torch.isinf(tensor.grad if type == "Sqrt" else torch.inf - tensor.grad).all())
