"""Activation functions"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import constant, directly, number
from d5ray.ops.torch.types import UNSIGNED, is_floating, known_rank, known_sizes
from d5ray.ops.torch.unsigned import from_ordered, through_signed, to_ordered


def celu(context: NodeContext) -> Kernel:
    """max(x, 0) + α (exp(min(x, 0) / α) − 1)   (Barron, arXiv:1704.07483)."""
    alpha = context.attribute("alpha", 1.0)

    def celu(x: Tensor) -> Tensor:
        return F.celu(x, alpha)

    return celu


def clip(context: NodeContext) -> Kernel:
    """min(max(x, low), high): where low is above high, everything becomes high."""
    bounds = [index for index in (1, 2) if context.has_input(index)]
    if all(index in context.constants and context.constants[index].dtype not in UNSIGNED for index in bounds):
        low, high = (number(constant(context, index)) for index in (1, 2))

        def clip(x: Tensor, *bounds: Tensor | None) -> Tensor:
            return torch.clamp(x, low, high)

        return clip if bounds else _same

    def between(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
        bounds = (None if bound is None else to_ordered(bound) for bound in (low, high))
        clamped = torch.clamp(to_ordered(x), *bounds)
        return clamped if clamped.dtype == x.dtype else from_ordered(clamped, x.dtype)

    return between


def _same(x: Tensor, *bounds: None) -> Tensor:
    return x


def elu(context: NodeContext) -> Kernel:
    """x for x > 0, else α (eˣ − 1)   (Clevert, Unterthiner and Hochreiter, arXiv:1511.07289)."""
    alpha = context.attribute("alpha", 1.0)

    def elu(x: Tensor) -> Tensor:
        return F.elu(x, alpha)

    return elu


def gelu(context: NodeContext) -> Kernel:
    """x Φ(x), or its approximation by tanh where the node asks for that   (arXiv:1606.08415)."""
    approximation = context.attribute("approximate", "none")
    if approximation == "none":
        return F.gelu

    def gelu(x: Tensor) -> Tensor:
        return F.gelu(x, approximate=approximation)

    return gelu


def hard_sigmoid(context: NodeContext) -> Kernel:
    """max(0, min(1, α x + β)), by PyTorch's own where α is 1/6 and β is 1/2."""
    alpha, beta = context.attribute("alpha", 0.2), context.attribute("beta", 0.5)
    if abs(alpha - 1 / 6) < 1e-7 and beta == 0.5:  # as PyTorch has it; the attribute is a float32
        return F.hardsigmoid

    def hard_sigmoid(x: Tensor) -> Tensor:
        return torch.clamp(alpha * x + beta, 0.0, 1.0)

    return hard_sigmoid


def leaky_relu(context: NodeContext) -> Kernel:
    """x for x > 0, else α x."""
    alpha = context.attribute("alpha", 0.01)

    def leaky_relu(x: Tensor) -> Tensor:
        return F.leaky_relu(x, alpha)

    return leaky_relu


def prelu(context: NodeContext) -> Kernel:
    """PyTorch's own where the slope is one number, or one for each channel; it broadcasts otherwise."""
    rank, slopes = known_rank(context), known_sizes(context, 1)
    if rank is not None and slopes is not None and rank > 1 and is_floating(context):
        aligned = (1,) * (rank - len(slopes)) + slopes  # with the axes of x
        if all(size == 1 for axis, size in enumerate(aligned) if axis != 1):

            def prelu(x: Tensor, slope: Tensor) -> Tensor:
                return F.prelu(x, slope.reshape(-1))

            return prelu

    def broadcast(x: Tensor, slope: Tensor) -> Tensor:
        return torch.where(x < 0, slope * x, x)

    return broadcast


def selu(context: NodeContext) -> Kernel:
    """γ x for x > 0, else γ α (eˣ − 1)   (Klambauer et al., arXiv:1706.02515)."""
    alpha, gamma = context.attribute("alpha", 1.6732632), context.attribute("gamma", 1.0507010)
    if abs(alpha - 1.6732632423543772) < 2e-7 and abs(gamma - 1.0507009873554805) < 2e-7:
        return torch.selu  # its constants are these, before they were rounded to float32

    def selu(x: Tensor) -> Tensor:
        return F.elu(x, alpha).mul(gamma)

    return selu


def shrink(context: NodeContext) -> Kernel:
    """x + bias below −λ, x − bias above λ, and 0 between them."""
    bias, threshold = context.attribute("bias", 0.0), context.attribute("lambd", 0.5)

    def shrink(x: Tensor) -> Tensor:
        shrunk = torch.where(x < -threshold, x + bias, torch.where(x > threshold, x - bias, 0))
        return shrunk.to(x.dtype)  # of integers, which become floating numbers on the way

    return shrink


def swish(context: NodeContext) -> Kernel:
    """x σ(α x)   (Ramachandran, Zoph and Le, arXiv:1710.05941)."""
    alpha = context.attribute("alpha", 1.0)
    if alpha == 1:
        return F.silu

    def swish(x: Tensor) -> Tensor:
        return x * torch.sigmoid(alpha * x)

    return swish


def thresholded_relu(context: NodeContext) -> Kernel:
    """x for x > α, else 0   (Konda, Memisevic and Krueger, arXiv:1402.3337)."""
    alpha = context.attribute("alpha", 1.0)

    def thresholded_relu(x: Tensor) -> Tensor:
        return F.threshold(x, alpha, 0.0)

    return thresholded_relu


FACTORIES: Mapping[str, KernelFactory] = {
    "Celu": celu,
    "Clip": clip,
    "Elu": elu,
    "Gelu": gelu,
    "HardSigmoid": hard_sigmoid,
    "HardSwish": directly(F.hardswish),
    "LeakyRelu": leaky_relu,
    "Mish": directly(F.mish),
    "PRelu": through_signed(prelu),
    "Relu": directly(torch.relu),
    "Selu": selu,
    "Shrink": shrink,
    "Sigmoid": directly(torch.sigmoid),
    "Softplus": directly(F.softplus),
    "Softsign": directly(F.softsign),
    "Swish": swish,
    "Tanh": directly(torch.tanh),
    "ThresholdedRelu": thresholded_relu,
}
