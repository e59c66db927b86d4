"""MatMul, Gemm, Einsum and Det"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import directly
from d5ray.ops.torch.types import is_floating, known_rank
from d5ray.ops.torch.unsigned import through_signed, to_signed, to_unsigned, widened


def einsum(context: NodeContext) -> Kernel:
    """PyTorch's own einsum by the node's equation, in the type of its inputs."""
    equation = context.required("equation").replace(" ", "")

    def einsum(*tensors: Tensor) -> Tensor:
        result: Tensor = torch.einsum(equation, *tensors)
        return result.to(tensors[0].dtype)  # sums of integers would be int64

    return einsum


def gemm(context: NodeContext) -> Kernel:
    """α A' B' + β C, where ' transposes or does not; a layer of a network is `torch.nn.functional.linear`."""
    alpha, beta = context.attribute("alpha", 1.0), context.attribute("beta", 1.0)
    flip_a, flip_b = context.attribute("transA", 0), context.attribute("transB", 0)
    plain = not flip_a and flip_b and alpha == beta == 1 and is_floating(context)
    if plain and (not context.has_input(2) or known_rank(context, 2) == 1):
        return F.linear

    def gemm(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        kind = a.dtype
        a, b = a.t() if flip_a else a, b.t() if flip_b else b
        if not kind.is_floating_point:
            return _of_integers(a, b, c, alpha, beta)
        if c is not None:
            return torch.addmm(c, a, b, alpha=alpha, beta=beta)
        return a @ b if alpha == 1 else alpha * (a @ b)

    return gemm


def _of_integers(a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float) -> Tensor:
    product = to_signed(a) @ to_signed(b)
    total = product if alpha == 1 else alpha * product.double()
    if c is not None:
        total = total + (to_signed(c) if beta == 1 else beta * to_signed(c).double())
    return to_unsigned(total, a.dtype)


def _determinant(x: Tensor) -> Tensor:
    """The determinant, in float32 where x has 16 bits, which PyTorch factorizes nowhere."""
    found: Tensor = torch.linalg.det(x.float() if x.dtype.itemsize == 2 else x).to(x.dtype)
    return found


FACTORIES: Mapping[str, KernelFactory] = {
    "Det": directly(_determinant),
    "Einsum": through_signed(einsum),
    "Gemm": gemm,
    "MatMul": widened(torch.matmul),
}
