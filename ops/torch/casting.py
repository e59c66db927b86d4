"""Cast, CastLike and BitCast"""

from collections.abc import Mapping

import torch
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.arrays import casting as reference
from d5ray.ops.torch.reference import by_reference
from d5ray.ops.torch.types import HELD_NUMBERS, HOLDERS, known_type, onnx_type

E8M0 = 24  # ONNX's number


def cast(context: NodeContext) -> Kernel:
    """Cast to the type that the node names; types that PyTorch does not compute in go by the reference."""
    number = context.required("to")
    if number in HELD_NUMBERS or number == E8M0:
        return by_reference(reference.Cast())(context)
    kind, saturate = onnx_type(context, "to"), bool(context.attribute("saturate", 1))
    if _is_8_bit(kind):

        def cast_to_8_bits(x: Tensor) -> Tensor:
            return _to_8_bits(x, kind, saturate)

        return cast_to_8_bits

    def cast(x: Tensor) -> Tensor:
        return x.to(kind)

    return cast


def cast_like(context: NodeContext) -> Kernel:
    """Cast to the type of the second input; types that PyTorch does not compute in go by the reference."""
    if known_type(context, 1) in HOLDERS or known_type(context, 1) == "float8_e8m0fnu":
        return by_reference(reference.CastLike())(context)
    saturate = bool(context.attribute("saturate", 1))

    def cast_like(x: Tensor, like: Tensor) -> Tensor:
        return _to_8_bits(x, like.dtype, saturate) if _is_8_bit(like.dtype) else x.to(like.dtype)

    return cast_like


def _is_8_bit(kind: torch.dtype) -> bool:
    return kind.is_floating_point and kind.itemsize == 1


def _to_8_bits(x: Tensor, kind: torch.dtype, saturate: bool) -> Tensor:
    """Cast; a value beyond the type's range becomes its greatest number, or else NaN or ∞.

    PyTorch goes one of these ways for one 8-bit type, and the other way for another.
    """
    x, greatest = x.float(), torch.finfo(kind).max
    if saturate:
        return x.clamp(-greatest, greatest).to(kind)
    if kind == torch.float8_e4m3fn:  # half a step above, even numbers win
        return x.masked_fill(x.abs() > greatest + 16, torch.nan).to(kind)
    return x.to(kind)


FACTORIES: Mapping[str, KernelFactory] = {
    "BitCast": by_reference(reference.BitCast()),
    "Cast": cast,
    "CastLike": cast_like,
}
