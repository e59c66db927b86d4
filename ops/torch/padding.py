"""Pad: with a number, mirrored, with the elements at the edge, or round and round"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.errors import ConfigurationError
from d5ray.operators.builder import Built
from d5ray.operators.site import Site
from d5ray.ops.torch.builders import Value, number, with_values

_MODES = ("constant", "reflect", "edge", "wrap")


@with_values(1, 2, 3)
def pad(site: Site, pads: Value, value: Value, axes: Value) -> Built:
    """pads: for every axis, or those given, how much comes before; then for each how much comes after."""
    mode = site.attribute("mode", "constant")
    if mode not in _MODES:
        raise ConfigurationError(
            f"the node {site.node} pads by {mode!r}: it must be one of {', '.join(_MODES)}"
        )
    begins, ends = pads[: len(pads) // 2], pads[len(pads) // 2 :]
    along = range(len(begins)) if axes is None else axes
    filling = 0 if value is None else number(value)

    def pad_with_number(x: Tensor, *others: Tensor | None) -> Tensor:
        amounts = [0] * (2 * x.dim())  # pairs, the last axis first
        for axis, begin, end in zip(along, begins, ends, strict=True):
            place = 2 * (x.dim() - 1 - axis % x.dim())
            amounts[place : place + 2] = begin, end
        return F.pad(x, amounts, value=filling)

    def pad_with_elements(x: Tensor, *others: Tensor | None) -> Tensor:
        """NumPy says which elements; it mirrors again where one mirror image is too short."""
        for axis, begin, end in zip(along, begins, ends, strict=True):
            places = _places(x.shape[axis], begin, end, mode)
            x = torch.index_select(x, axis, torch.tensor(places, device=x.device))
        return x

    return pad_with_number if mode == "constant" else pad_with_elements


def _places(size: int, begin: int, end: int, mode: Any) -> Sequence[int]:
    """Which elements come where along an axis; negative amounts cut off."""
    kept = np.arange(size)[max(-begin, 0) : size - max(-end, 0)]
    places: list[int] = np.pad(kept, (max(begin, 0), max(end, 0)), mode).tolist()
    return places
