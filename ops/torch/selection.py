"""Operators that choose elements by index: Gather, Scatter, TopK, OneHot and their family"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.torch.builders import Value, asked, constant, number, with_values
from d5ray.ops.torch.types import is_floating, known_rank
from d5ray.ops.torch.unsigned import from_ordered, through_ordered, through_signed, to_ordered

_REDUCTIONS = {"mul": "prod", "max": "amax", "min": "amin"}  # ONNX's names of them, and PyTorch's


def compress(context: NodeContext) -> Kernel:
    """The elements along an axis, or of all in their order, for which the condition holds."""
    axis = context.attribute("axis")

    def compress(x: Tensor, condition: Tensor) -> Tensor:
        places = condition.nonzero().squeeze(1)
        return torch.index_select(x.flatten() if axis is None else x, axis or 0, places)

    return compress


def gather(context: NodeContext) -> Kernel:
    """Slices along an axis, by indices of any shape; negative ones count from the end."""
    axis, index = context.attribute("axis", 0), constant(context, 1)
    if isinstance(index, int):

        def select(x: Tensor, indices: Tensor) -> Tensor:
            return x.select(axis, index)

        return select
    counted = 1 in context.constants and bool((context.constants[1] >= 0).all())
    if axis == 0 and known_rank(context, 0) == 2 and is_floating(context):

        def embedding(table: Tensor, indices: Tensor) -> Tensor:
            return torch.embedding(table, indices if counted else _from_start(indices, table.shape[0]))

        return embedding

    def gather(x: Tensor, indices: Tensor) -> Tensor:
        places = indices if counted else _from_start(indices, x.shape[axis])
        first = axis % x.dim()
        chosen = torch.index_select(x, axis, places.reshape(-1))
        return chosen.reshape((*x.shape[:first], *indices.shape, *x.shape[first + 1 :]))

    return gather


def _from_start(indices: Tensor, size: int) -> Tensor:
    """Negative indices count from the end; those out of range stay so, for PyTorch to refuse them."""
    return torch.where(indices < 0, indices + size, indices)


def gather_elements(context: NodeContext) -> Kernel:
    """PyTorch's gather along the node's axis; negative indices count from the end."""
    axis = context.attribute("axis", 0)

    def gather_elements(x: Tensor, indices: Tensor) -> Tensor:
        return torch.gather(x, axis, _from_start(indices, x.shape[axis]).long())

    return gather_elements


def gather_nd(context: NodeContext) -> Kernel:
    """x[batch…, indices[batch…, i, 0], indices[batch…, i, 1], …] for every i."""
    batch_axes = context.attribute("batch_dims", 0)

    def gather_nd(x: Tensor, indices: Tensor) -> Tensor:
        if batch_axes == 0:
            return x[indices.unbind(-1)]
        batch, inner = x.shape[:batch_axes], indices.shape[batch_axes:-1]
        flat = indices.reshape(-1, math.prod(inner), indices.shape[-1])  # (batch, places, depth)
        rows = torch.arange(flat.shape[0], device=x.device).unsqueeze(1)
        chosen = x.flatten(0, batch_axes - 1)[(rows, *flat.unbind(-1))]
        return chosen.reshape((*batch, *inner, *chosen.shape[2:]))

    return gather_nd


def non_zero(context: NodeContext) -> Kernel:
    """The indices of the elements that are not 0: (axes, elements)."""

    def non_zero(x: Tensor) -> Tensor:
        return torch.nonzero(x).t()

    return non_zero


@with_values(1)
def one_hot(context: NodeContext, given: Value) -> Kernel:
    """OneHot for indices of any number type; those out of range give no hot element."""
    axis, depth = context.attribute("axis", -1), int(number(given))

    def one_hot(indices: Tensor, depth_: Tensor, values: Tensor) -> Tensor:
        at = axis % (indices.dim() + 1)
        places = _from_start(indices.long(), depth).unsqueeze(at)
        classes = torch.arange(depth, device=indices.device).reshape(-1, *(1,) * (indices.dim() - at))
        off, on = values.unbind()
        return torch.where(places == classes, on, off)

    return one_hot


def scatter_elements(context: NodeContext) -> Kernel:
    """A copy of x with updates at x[…, index, …]; where several meet, the reduction says what comes of it."""
    axis, reduction = context.attribute("axis", 0), context.attribute("reduction", "none")

    def scatter(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        places = _from_start(indices, x.shape[axis]).long()
        if reduction == "none":
            return torch.scatter(x, axis, places, updates)
        if reduction == "add":
            return torch.scatter_add(x, axis, places, updates)
        return torch.scatter_reduce(x, axis, places, updates, _REDUCTIONS[reduction])

    return scatter


def scatter_nd(context: NodeContext) -> Kernel:
    """A copy of x with updates[i] at x[indices[i, 0], indices[i, 1], …] for every i."""
    reduction = context.attribute("reduction", "none")

    def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
        if reduction in ("none", "add"):
            return torch.index_put(x, indices.long().unbind(-1), updates, accumulate=reduction == "add")
        depth = indices.shape[-1]
        flat = x.reshape(math.prod(x.shape[:depth]), -1)  # (places, elements of each)
        rows = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=x.device)
        for size, along in zip(x.shape, indices.long().unbind(-1), strict=False):
            rows = rows * size + _from_start(along, size)
        rows = rows.reshape(-1, 1).expand(-1, flat.shape[1])
        values = updates.reshape(rows.shape)
        return torch.scatter_reduce(flat, 0, rows, values, _REDUCTIONS[reduction]).reshape(x.shape)

    return scatter_nd


def scattered(builder: KernelFactory) -> KernelFactory:
    """A scattering of unsigned integers: what compares them needs their order, what computes their bits."""

    def build(context: NodeContext) -> Kernel:
        compares = context.attribute("reduction", "none") in ("max", "min")
        return (through_ordered if compares else through_signed)(builder)(context)

    return build


@with_values(1)
def top_k(context: NodeContext, given: Value) -> Kernel:
    """The k greatest or smallest along an axis and their places; of equal ones, the first come first.

    PyTorch's topk leaves that open, so this sorts.
    """
    axis, greatest, k = context.attribute("axis", -1), bool(context.attribute("largest", 1)), number(given)

    def top_k(x: Tensor, k_: Tensor) -> Any:
        values, places = torch.sort(to_ordered(x), dim=axis, descending=greatest, stable=True)
        values = values.narrow(axis, 0, k)
        values = values if values.dtype == x.dtype else from_ordered(values, x.dtype)
        return values, places.narrow(axis, 0, k)

    return asked(context, top_k)


FACTORIES: Mapping[str, KernelFactory] = {
    "Compress": through_signed(compress),
    "Gather": gather,
    "GatherElements": through_signed(gather_elements),
    "GatherND": gather_nd,
    "NonZero": non_zero,
    "OneHot": one_hot,
    "ScatterElements": scattered(scatter_elements),
    "ScatterND": scattered(scatter_nd),
    "TopK": top_k,
}
