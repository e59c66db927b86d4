"""Reductions, ArgMax and ArgMin, cumulative sums and products"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import Value, number, with_values
from d5ray.ops.torch.unsigned import from_ordered, through_signed, to_ordered, to_signed

Axes = tuple[int, ...]
Reduce = Callable[[Tensor, Axes, bool], Tensor]  # axes are not empty


@final
@dataclass(frozen=True)
class ReduceFunctions:
    """The functions of a Reduce… operator: over some axes, and for one element if no axis is reduced."""

    over: Reduce
    of_one: Callable[[Tensor], Tensor]


def reduction(kind: ReduceFunctions) -> KernelFactory:
    """The reduction over the axes of the second input; without it over all or, if a node says so, none."""

    def make(context: NodeContext, given: Value) -> Kernel:
        axes: Axes = tuple(given or ())
        kept = bool(context.attribute("keepdims", 1))
        over, of_one = kind.over, kind.of_one
        if not axes and context.attribute("noop_with_empty_axes", 0):

            def none_reduced(x: Tensor, axes: Tensor | None = None) -> Tensor:
                return of_one(x)

            return none_reduced

        def reduced(x: Tensor, given: Tensor | None = None) -> Tensor:
            these = axes or tuple(range(x.dim()))
            return over(x, these, kept) if these else of_one(x)

        return reduced

    return with_values(1)(make)


def _sum(x: Tensor, axes: Axes, kept: bool) -> Tensor:
    signed = to_signed(x)
    return torch.sum(signed, axes, kept, dtype=signed.dtype).to(x.dtype)


def _mean(x: Tensor, axes: Axes, kept: bool) -> Tensor:
    if x.is_floating_point():
        return torch.mean(x, axes, kept)
    return torch.mean(x.double(), axes, kept).to(x.dtype)


def _product(x: Tensor, axes: Axes, kept: bool) -> Tensor:
    signed = to_signed(x)
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        signed = torch.prod(signed, axis, kept, dtype=signed.dtype)
    return signed.to(x.dtype)


def _extreme(function: Callable[[Tensor, Axes, bool], Tensor], sign: int) -> Reduce:
    """The extreme; of no elements, the maximum is the lowest number there is."""

    def over(x: Tensor, axes: Axes, kept: bool) -> Tensor:
        if x.numel():
            result = function(to_ordered(x), axes, kept)
            return result if result.dtype == x.dtype else from_ordered(result, x.dtype)
        empty = torch.sum(torch.zeros_like(x, dtype=torch.float32), axes, kept)
        if x.is_floating_point():
            return torch.full_like(empty, -sign * torch.inf, dtype=x.dtype)
        if x.dtype == torch.bool:
            return torch.full_like(empty, sign < 0, dtype=x.dtype)
        limits = torch.iinfo(x.dtype)
        return torch.full_like(empty, limits.min if sign > 0 else limits.max, dtype=x.dtype)

    return over


def _norm(order: int) -> Reduce:
    def over(x: Tensor, axes: Axes, kept: bool) -> Tensor:
        if x.is_floating_point():
            result: Tensor = torch.linalg.vector_norm(x, order, axes, kept)
            return result
        if order == 1:
            return _sum(_magnitude(x), axes, kept)
        return torch.sum(x.double().square(), axes, kept).sqrt().to(x.dtype)

    return over


def _magnitude(x: Tensor) -> Tensor:
    return x.abs() if x.dtype.is_signed else x


def _log_sum(x: Tensor, axes: Axes, kept: bool) -> Tensor:
    return torch.log(_sum(x, axes, kept))


def _square(x: Tensor) -> Tensor:
    return to_signed(x).square().to(x.dtype)


def _sum_square(x: Tensor, axes: Axes, kept: bool) -> Tensor:
    return _sum(_square(x), axes, kept)


def _itself(x: Tensor) -> Tensor:
    return x


def place(function: Callable[[Tensor, int, bool], Tensor]) -> KernelFactory:
    """ArgMax or ArgMin: the first place of the extreme along an axis, or the last if the node says so."""

    def build(context: NodeContext) -> Kernel:
        axis, kept = context.attribute("axis", 0), bool(context.attribute("keepdims", 1))

        def first(x: Tensor) -> Tensor:
            return function(to_ordered(x), axis, kept)

        def last(x: Tensor) -> Tensor:
            return x.shape[axis] - 1 - function(to_ordered(x).flip(axis), axis, kept)

        return last if context.attribute("select_last_index", 0) else first

    return build


def cumulative(function: Callable[..., Tensor], neutral: int) -> KernelFactory:
    """PyTorch's function; exclusive: the element itself is left out. reverse: from the end."""

    def make(context: NodeContext, given: Value) -> Kernel:
        axis, exclusive, reverse = (
            number(given),
            context.attribute("exclusive", 0),
            context.attribute("reverse", 0),
        )

        def cumulated(x: Tensor, axis_: Tensor) -> Tensor:
            elements = x.flip(axis) if reverse else x
            if exclusive:
                nothing = torch.full_like(elements.narrow(axis, 0, min(1, x.shape[axis])), neutral)
                elements = torch.cat((nothing, elements.narrow(axis, 0, max(x.shape[axis] - 1, 0))), axis)
            found = function(elements, axis, dtype=x.dtype)
            return found.flip(axis) if reverse else found

        return cumulated

    return with_values(1)(make)


FACTORIES: Mapping[str, KernelFactory] = {
    "ArgMax": place(torch.argmax),
    "ArgMin": place(torch.argmin),
    "CumProd": through_signed(cumulative(torch.cumprod, 1)),
    "CumSum": through_signed(cumulative(torch.cumsum, 0)),
    "ReduceL1": reduction(ReduceFunctions(_norm(1), _magnitude)),
    "ReduceL2": reduction(ReduceFunctions(_norm(2), _magnitude)),
    "ReduceLogSum": reduction(ReduceFunctions(_log_sum, torch.log)),
    "ReduceLogSumExp": reduction(ReduceFunctions(torch.logsumexp, _itself)),
    "ReduceMax": reduction(ReduceFunctions(_extreme(torch.amax, 1), _itself)),
    "ReduceMean": reduction(ReduceFunctions(_mean, _itself)),
    "ReduceMin": reduction(ReduceFunctions(_extreme(torch.amin, -1), _itself)),
    "ReduceProd": reduction(ReduceFunctions(_product, _itself)),
    "ReduceSum": reduction(ReduceFunctions(_sum, _itself)),
    "ReduceSumSquare": reduction(ReduceFunctions(_sum_square, _square)),
}
