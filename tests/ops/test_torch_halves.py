"""Operators under PyTorch in float16 and bfloat16: as in float64, to some steps of the type"""

import pytest
import torch
from torch import Tensor

from d5ray.ops.torch import FACTORIES
from d5ray.ops.torch.types import tensor_of
from tests.ops.torch_case import known, node, one_thread  # noqa: F401 - one thread
from tests.ops.torch_rows import ROWS, Row

STEPS = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}  # the distance of 1 to the next number
OF_THEIR_OWN = {"Cast": "the type is named by the node", "Dropout": "other elements are drawn"}


def computed(row: Row, narrow: torch.dtype, kind: torch.dtype) -> tuple[list[Tensor], list[Tensor | None]]:
    """The floating-point outputs, and the gradients of their sum, of inputs that the narrow type has."""
    arrays = row.drawn()
    built = FACTORIES[row.type](known(node(row.type, arrays, row.outputs, **row.attributes), arrays))
    tensors = [None if x is None else tensor_of(x) for x in arrays]
    tensors = [x.to(narrow).to(kind) if x is not None and x.is_floating_point() else x for x in tensors]
    drawn = [tensors[i].requires_grad_() for i, x in enumerate(row.inputs) if isinstance(x, tuple)]  # type: ignore[union-attr]
    found = built(*tensors)
    outputs = [y for y in (found if isinstance(found, tuple) else (found,)) if y.is_floating_point()]
    total = torch.stack([y.double().sum() for y in outputs if y.requires_grad]).sum()
    return outputs, list(torch.autograd.grad(total, drawn, allow_unused=True))


@pytest.mark.parametrize("narrow", STEPS, ids=str)
@pytest.mark.parametrize(
    "row", [pytest.param(row, id=str(row)) for row in ROWS if row.type not in OF_THEIR_OWN]
)
def test_halves_are_computed_as_wider_numbers(row: Row, narrow: torch.dtype) -> None:
    """Outputs to 16 steps and gradients to 32, of 1 or of the number itself, in the type of the inputs."""
    ours, exact = computed(row, narrow, narrow), computed(row, narrow, torch.float64)
    for part, steps in enumerate((16, 32)):
        bound = steps * STEPS[narrow]
        for a, b in zip(ours[part], exact[part], strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                statistic = row.type == "LayerNormalization" and row.outputs > 1  # which ONNX has in float32
                assert a.dtype == narrow or statistic
                torch.testing.assert_close(a.double(), b.double(), rtol=bound, atol=bound)
