"""Mask of Attention: masks as given, causal ones, sliding windows, padded sequences"""

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.node_context import NodeContext


@final
class Mask:
    """The mask of a node of type Attention, for scores (batch, heads, queries, keys).

    A query stands at the place among the keys that comes after those of the past; where only the lengths of
    the sequences are given, the queries are the last of each.
    """

    def __init__(self, context: NodeContext) -> None:
        self.causal = bool(context.attribute("is_causal", 0))
        self._left: int = context.attribute("left_window_size", -1)
        self._right: int = context.attribute("right_window_size", -1)

    @property
    def plain(self) -> bool:
        """True if there is no window, so that a kernel needs to know only if the mask is causal."""
        return self._left < 0 and self._right < 0

    def for_kernel(
        self, q: Tensor, k: Tensor, given: Tensor | None, past: int, lengths: Tensor | None
    ) -> tuple[Tensor | None, bool]:
        """The mask, and whether the kernel is to lay the plain causal one, which it does without a tensor."""
        if self.causal and self.plain and given is None and past == 0 and lengths is None:
            return None, True
        allowed = self._allowed(q, k, past, lengths)
        given = _padded(given, k)
        if allowed is None or given is None:
            return allowed if given is None else given, False
        if given.dtype == torch.bool:
            return given & allowed, False
        return given.masked_fill(~allowed, -torch.inf), False

    def bias(
        self, q: Tensor, k: Tensor, given: Tensor | None, past: int, lengths: Tensor | None
    ) -> Tensor | None:
        """The bias that is added to the scores: 0 or −∞, or the numbers given."""
        given, allowed = _padded(given, k), self._allowed(q, k, past, lengths)
        if given is not None and given.dtype == torch.bool:
            given = _numbers(given, q)
        if given is None or allowed is None:
            return given if allowed is None else _numbers(allowed, q)
        return given.masked_fill(~allowed, -torch.inf)

    def _allowed(self, q: Tensor, k: Tensor, past: int, lengths: Tensor | None) -> Tensor | None:
        """True where a query may see a key, by their places alone: (batch or 1, 1, queries, keys)."""
        keys = torch.arange(k.shape[2], device=q.device)
        places: Tensor = torch.arange(q.shape[2], device=q.device).unsqueeze(1) + past  # (queries, 1)
        if lengths is not None:
            ends = lengths.reshape(-1, 1, 1, 1)
            places = places + ends - q.shape[2]
        seen = []
        if self.causal:
            seen.append(keys <= places)
        if self._left >= 0:
            seen.append(keys >= places - self._left)
        if self._right >= 0:
            seen.append(keys <= places + self._right)
        if lengths is not None:
            seen.append(keys < ends)
        if not seen:
            return None
        allowed = seen[0]
        for each in seen[1:]:
            allowed = allowed & each
        return allowed


def _padded(given: Tensor | None, k: Tensor) -> Tensor | None:
    """A mask for fewer keys than there are leaves out the others."""
    if given is None or given.shape[-1] == k.shape[2]:
        return given
    more = k.shape[2] - given.shape[-1]
    return F.pad(given, (0, more), value=False if given.dtype == torch.bool else -torch.inf)


def _numbers(allowed: Tensor, q: Tensor) -> Tensor:
    return torch.zeros_like(allowed, dtype=q.dtype).masked_fill(~allowed, -torch.inf)
