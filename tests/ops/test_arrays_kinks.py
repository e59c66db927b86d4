"""The array operators where they have no derivative: the slopes are those of PyTorch"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from d5ray.ops.arrays import OPERATORS
from tests.ops.operator_rows import Row

KINKS: dict[str, tuple[Row, Callable[..., Tensor]]] = {
    "Abs": (Row("Abs", (np.zeros(1),)), torch.abs),
    "Relu": (Row("Relu", (np.zeros(1),)), torch.relu),
    "LeakyRelu": (Row("LeakyRelu", (np.zeros(1),), {"alpha": 0.3}), lambda x: functional.leaky_relu(x, 0.3)),
    "PRelu": (Row("PRelu", (np.zeros(1), np.array([0.3]))), torch.prelu),
    "Elu": (Row("Elu", (np.zeros(1),), {"alpha": 0.3}), lambda x: functional.elu(x, 0.3)),
    "Celu": (Row("Celu", (np.zeros(1),), {"alpha": 0.3}), lambda x: functional.celu(x, 0.3)),
    "HardSwish": (Row("HardSwish", (np.array([-3.0, 3.0]),)), functional.hardswish),
    "HardSigmoid": (
        Row("HardSigmoid", (np.array([-4.0, 4.0]),), {"alpha": 0.125, "beta": 0.5}),
        lambda x: torch.nn.functional.hardsigmoid(0.75 * x),  # whose alpha is 1/6
    ),
    "Shrink": (
        Row("Shrink", (np.array([-0.5, 0.5]),), {"lambd": 0.5, "bias": 0.5}),
        lambda x: functional.softshrink(x, 0.5),
    ),
    "ThresholdedRelu": (Row("ThresholdedRelu", (np.ones(1),)), lambda x: functional.threshold(x, 1.0, 0.0)),
    "Clip": (Row("Clip", (np.array([-1.0, 1.0]), np.array(-1.0), np.array(1.0))), torch.clamp),
    "Max": (Row("Max", (np.ones(1), np.ones(1))), torch.maximum),
    "Min": (Row("Min", (np.ones(1), np.ones(1))), torch.minimum),
    "Pow": (Row("Pow", (np.zeros(3), np.array([0.0, 1.0, 2.0]))), torch.pow),
    "ReduceL1": (Row("ReduceL1", (np.array([0.0, 1.0]),)), lambda x: torch.linalg.vector_norm(x, 1)),
    "ReduceL2": (Row("ReduceL2", (np.zeros(2),)), lambda x: torch.linalg.vector_norm(x)),
    "ReduceMax": (Row("ReduceMax", (np.array([1.0, 2.0, 2.0]),)), torch.amax),
    "ReduceMin": (Row("ReduceMin", (np.array([1.0, 1.0, 2.0]),)), torch.amin),
    "ReduceProd": (Row("ReduceProd", (np.array([0.0, 2.0, 3.0]),)), torch.prod),
    "ReduceProd, two zeros": (Row("ReduceProd", (np.array([0.0, 0.0, 3.0]),)), torch.prod),
    "Softmax": (Row("Softmax", (np.array([1.0, 1.0]),)), lambda x: torch.softmax(x, -1)),
}


@pytest.mark.parametrize("kind", KINKS)
def test_slopes_at_kinks_are_those_of_pytorch(kind: str) -> None:
    """One-sided slopes, equal shares, or 0: so that comparing frameworks finds no difference there."""
    row, function = KINKS[kind]
    inputs: list[Any] = row.drawn(np.float64)
    operator = OPERATORS[row.type]
    outputs = operator.forward(np, row.context, inputs)
    found = operator.backward(np, row.context, [np.ones_like(outputs[0])], inputs, outputs)
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    function(*tensors).sum().backward()  # type: ignore[no-untyped-call]
    for x, gradient in zip(tensors, found, strict=True):
        assert x.grad is not None and gradient is not None
        np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-6, atol=0)
