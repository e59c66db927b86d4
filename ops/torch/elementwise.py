"""Element-wise arithmetic and functions, with broadcasting"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import constant, directly
from d5ray.ops.torch.types import is_floating, known_type
from d5ray.ops.torch.unsigned import ordered, quotient, remainder, to_signed, to_unsigned, widened


def divide(context: NodeContext) -> Kernel:
    """Integers are divided towards zero."""
    if is_floating(context):
        return torch.div

    def div(a: Tensor, b: Tensor) -> Tensor:
        return torch.div(a, b) if a.is_floating_point() else quotient(a, b)

    return div


def modulo(context: NodeContext) -> Kernel:
    """fmod=1 gives the sign of the dividend, as C does, and 0 that of the divisor, as Python does."""
    if context.attribute("fmod", 0):
        return widened(torch.fmod)(context)
    if is_floating(context):
        return torch.remainder

    def mod(a: Tensor, b: Tensor) -> Tensor:
        return torch.remainder(a, b) if a.is_floating_point() else remainder(a, b)

    return mod


def power(context: NodeContext) -> Kernel:
    """The power, in the type of the base, whatever the exponent's."""
    exponent = constant(context, 1)
    if is_floating(context) and isinstance(exponent, (int, float)):

        def to_number(base: Tensor, _: Tensor) -> Tensor:
            return torch.pow(base, exponent)

        return to_number
    if is_floating(context) and known_type(context, 0) == known_type(context, 1):
        return torch.pow

    def pow(base: Tensor, exponent: Tensor) -> Tensor:
        if base.is_floating_point():
            return torch.pow(base, exponent.to(base.dtype))
        if exponent.is_floating_point():
            return torch.pow(base.double(), exponent.double()).to(base.dtype)
        return to_unsigned(torch.pow(to_signed(base), to_signed(exponent)), base.dtype)

    return pow


def variadic(binary: KernelFactory) -> KernelFactory:
    """A kernel factory for one tensor or more, from the function of two."""

    def build(context: NodeContext) -> Kernel:
        count, function = len(context.node.inputs), binary(context)
        if count == 1:
            return _only
        if count == 2:
            return function

        def all_of(first: Tensor, *others: Tensor) -> Any:
            for other in others:
                first = function(first, other)
            return first

        return all_of

    return build


def mean(context: NodeContext) -> Kernel:
    """The mean of all inputs, broadcast to one shape; with one input, that input."""
    total, count = variadic(directly(torch.add))(context), len(context.node.inputs)

    def mean(*tensors: Tensor) -> Tensor:
        result: Tensor = total(*tensors) / count
        return result

    return _only if count == 1 else mean


def _only(tensor: Tensor) -> Tensor:
    return tensor


FACTORIES: Mapping[str, KernelFactory] = {
    "Abs": widened(torch.abs),
    "Acos": directly(torch.acos),
    "Acosh": directly(torch.acosh),
    "Add": widened(torch.add),
    "Asin": directly(torch.asin),
    "Asinh": directly(torch.asinh),
    "Atan": directly(torch.atan),
    "Atanh": directly(torch.atanh),
    "Ceil": directly(torch.ceil),
    "Cos": directly(torch.cos),
    "Cosh": directly(torch.cosh),
    "Div": divide,
    "Erf": directly(torch.erf),
    "Exp": directly(torch.exp),
    "Floor": directly(torch.floor),
    "Log": directly(torch.log),
    "Max": variadic(ordered(torch.maximum)),
    "Mean": mean,
    "Min": variadic(ordered(torch.minimum)),
    "Mod": modulo,
    "Mul": widened(torch.mul),
    "Neg": directly(torch.neg),
    "Pow": power,
    "Reciprocal": directly(torch.reciprocal),
    "Round": directly(torch.round),  # halves to the even number, as ONNX has it
    "Sign": widened(torch.sign),
    "Sin": directly(torch.sin),
    "Sinh": directly(torch.sinh),
    "Sqrt": directly(torch.sqrt),
    "Sub": widened(torch.sub),
    "Sum": variadic(directly(torch.add)),
    "Tan": directly(torch.tan),
}
