"""Pad: with a number, mirrored, with the elements at the edge, or round and round"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.ops.torch.builders import Value, number, with_values
from d5ray.ops.torch.types import known_sizes

_MODES = ("constant", "reflect", "edge", "wrap")


@with_values(1, 2, 3)
def pad(context: NodeContext, pads: Value, value: Value, axes: Value) -> Kernel:
    """Pad. pads: for every axis, or those given, how much comes before; then how much comes after."""
    mode = context.attribute("mode", "constant")
    if mode not in _MODES:
        raise ConfigurationError(
            f"the node {context.node} pads by {mode!r}: it must be one of {', '.join(_MODES)}"
        )
    begins, ends = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    along = range(len(begins)) if axes is None else axes
    filling = 0 if value is None else number(value)

    def pad_with_number(x: Tensor, *others: Tensor | None) -> Tensor:
        amounts = [0] * (2 * x.dim())  # pairs, the last axis first
        for axis, begin, end in zip(along, begins, ends, strict=True):
            place = 2 * (x.dim() - 1 - axis % x.dim())
            amounts[place : place + 2] = begin, end
        given = others[1] if len(others) > 1 else None
        if given is None or not given.requires_grad:
            return F.pad(x, amounts, value=filling)
        inside = F.pad(torch.ones_like(x, dtype=torch.bool), amounts, value=False)
        return torch.where(inside, F.pad(x, amounts), given.reshape(()))

    def tables(shape: Sequence[int]) -> list[Tensor]:
        return [
            torch.tensor(_places(shape[axis], begin, end, mode), dtype=torch.int64)
            for axis, begin, end in zip(along, begins, ends, strict=True)
        ]

    shape = known_sizes(context)
    known = None if shape is None or mode == "constant" else tables(shape)

    def pad_with_elements(x: Tensor, *others: Tensor | None) -> Tensor:
        for axis, places in zip(along, known or tables(x.shape), strict=True):
            x = torch.index_select(x, axis, places.to(x.device))
        return x

    return pad_with_number if mode == "constant" else pad_with_elements


def _places(size: int, begin: int, end: int, mode: str) -> list[int]:
    """The elements that come along an axis; negative amounts cut off.

    A mirror that is too short is mirrored again, as in NumPy.
    """
    first, size = max(-begin, 0), size - max(-begin, 0) - max(-end, 0)
    period = max(2 * (size - 1), 1)
    found = []
    for place in range(-max(begin, 0), size + max(end, 0)):
        if mode == "edge":
            place = min(max(place, 0), size - 1)
        elif mode == "wrap":
            place %= size
        else:
            place = min(place % period, period - place % period) if size > 1 else 0
        found.append(first + place)
    return found
