"""Recurrent operators step by step: any activations, peepholes, clipping, sequences of different lengths"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.ops.recurrence.by_steps import StepLibrary
from d5ray.ops.recurrence.formulas import States

# Of x, and of alpha and beta where ONNX's function has them.
FUNCTIONS: Final[Mapping[str, Callable[..., Tensor]]] = {
    "Affine": lambda x, alpha, beta: alpha * x + beta,
    "Elu": F.elu,
    "HardSigmoid": lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0, 1),
    "LeakyRelu": F.leaky_relu,
    "Relu": torch.relu,
    "ScaledTanh": lambda x, alpha, beta: alpha * torch.tanh(beta * x),
    "Sigmoid": torch.sigmoid,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Tanh": torch.tanh,
    "ThresholdedRelu": lambda x, alpha: F.threshold(x, alpha, 0),
}


def _all_steps(
    step: Callable[[Tensor, States], tuple[States, Any]],
    gates: Tensor,
    states: States,
    lengths: Tensor | None,
    backwards: bool,
) -> tuple[Tensor, States]:
    outputs: list[Tensor] = []
    for time in reversed(range(len(gates))) if backwards else range(len(gates)):
        found, _ = step(gates[time], states)
        output = found[0]
        if lengths is not None:
            within = (time < lengths).unsqueeze(1)
            output = torch.where(within, output, 0)
            found = tuple(torch.where(within, new, old) for new, old in zip(found, states, strict=True))
        states = found
        outputs.append(output)
    return torch.stack(outputs[::-1] if backwards else outputs), states


def _zeros(x: Tensor, hidden: int) -> Tensor:
    return x.new_zeros(x.shape[1], hidden)


STEPS: Final = StepLibrary(torch, FUNCTIONS, torch.clamp, _zeros, _all_steps)
