"""Slots: the places of a network's parameter tensors in its flat buffer"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Slot:
    """The place of one parameter tensor in the flat buffer."""

    name: str
    offset: int  # in elements
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements of the tensor."""
        return int(np.prod(self.shape, dtype=np.int64))


def by_name(flat: Any, slots: Iterable[Slot]) -> dict[str, Any]:
    """Views of a flat array (n,) of an array library, of every tensor that lies in it, by their names."""
    return {s.name: flat[s.offset : s.offset + s.size].reshape(s.shape) for s in slots}
