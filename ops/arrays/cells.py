"""Cells of recurrent operators: one direction through time, forwards and backwards"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.operators.array_operator import Array
from d5ray.ops.arrays.gate_functions import GateFunction


@final
@dataclass(frozen=True)
class Passage:
    """One direction through a batch of sequences. Sizes: T steps, B sequences, H hidden, G gates.

    times: the steps in the order in which they are taken. active (T, B, 1): false behind a sequence's end,
    where the state stands still and the output is 0; None where all have the same length. recurrence (G·H,
    H), bias (G·H,) of the recurrence or None, peepholes (3·H,) or None.
    """

    times: Sequence[int]
    active: Array | None
    recurrence: Array
    bias: Array | None
    peepholes: Array | None
    functions: Sequence[GateFunction]

    def step(self, xp: Any, time: int, new: Array, old: Array) -> Array:
        """The new state where the sequence is going on, and the old one where it has ended."""
        return new if self.active is None else xp.where(self.active[time], new, old)

    def going_on(self, time: int, gradient: Array) -> tuple[Array, Array | int]:
        """A gradient in two parts: of the sequences that are going on, and of those that have ended."""
        if self.active is None:
            return gradient, 0
        going = gradient * self.active[time]
        return going, gradient - going


@final
@dataclass(frozen=True)
class Through:
    """The gradients of one direction: of the gates (T, B, G·H), of its parameters, and of its first state."""

    gates: Array
    recurrence: Array
    bias: Array
    peepholes: Array | None
    hidden: Array
    cell: Array | None = None


class Cell(ABC):
    """One step of a recurrent operator. `gates` (T, B, G·H): the products of input and weight, with bias."""

    @abstractmethod
    def run(
        self, xp: Any, passage: Passage, gates: Array, hidden: Array, cell: Array | None
    ) -> tuple[Array, Array, Array | None, tuple[Array, ...]]:
        """The outputs (T, B, H), the last hidden and cell states (B, H), and what is kept for `back`.

        The gates' array becomes what the activations take.
        """

    @abstractmethod
    def back(
        self,
        xp: Any,
        passage: Passage,
        kept: Sequence[Array],
        outputs: Array,
        hidden: Array,
        cell: Array | None,
    ) -> Through:
        """The gradients back through time, from those of the outputs (T, B, H) and last states (B, H)."""


def parts(array: Array, count: int) -> list[Array]:
    """Views of as many equal parts of the last axis."""
    size = array.shape[-1] // count
    return [array[..., first : first + size] for first in range(0, count * size, size)]


def product(left: Array, right: Array) -> Array:
    """Σ over steps and sequences: (T, B, m), (T, B, n) -> (m, n)."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])


def total(array: Array) -> Array:
    """Σ over steps and sequences: (T, B, m) -> (m,)."""
    return array.sum(axis=(0, 1))
