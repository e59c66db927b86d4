"""Compressor: a vector becomes fewer bytes and comes back, with its loss stated"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from d5ray.checks import KnownKeywords, with_settings
from d5ray.distributed.communicators.communicator import Message

Array = np.ndarray[Any, Any]
Indices = np.ndarray[Any, np.dtype[np.int64]]


class Compressor(KnownKeywords, ABC):
    """C(v) of a vector v (n,), float32 or float64, as frozen data without a memory.

    Where v is not finite, C(v) is not either: NaN gives NaN and infinity gives infinity or NaN, at this entry
    or at more of them, so that a training that diverged is seen to have diverged.
    Every random choice comes from the generator that is given; the same state makes the same choice.
    """

    def __repr__(self) -> str:
        return with_settings(self)

    @property
    def linear(self) -> bool:
        """True if C(a) + C(b) = C(a + b) for the same random choice."""
        return False

    @property
    def unbiased(self) -> bool:
        """True if E C(v) = v."""
        return False

    @property
    def rounding(self) -> bool:
        """True if every entry is off by at most 2**-8 of it, so that a training needs no error feedback."""
        return False

    @abstractmethod
    def contraction(self, n: int) -> float | None:
        """The largest known δ in (0, 1] with E‖v − C(v)‖² ≤ (1 − δ)‖v‖² for all v (n,); None: there is none.

        (Karimireddy et al., arXiv:1901.09847, assumption A)
        """

    def bounded_residual(self, n: int) -> bool:
        """True if error feedback makes up for what C loses: always with a contraction."""
        return self.contraction(n) is not None

    def check(self, n: int) -> None:
        """Raise `ConfigurationError` if this does not fit a vector of n entries."""

    @abstractmethod
    def compress(self, vector: Array, rng: np.random.Generator) -> Message:
        """v (n,) as what is sent (bytes,) uint8."""

    @abstractmethod
    def decompress(self, message: Message, n: int, dtype: Any) -> Array:
        """C(v) (n,) from what was sent, in v's type."""

    @abstractmethod
    def message_bytes(self, n: int, dtype: Any) -> int | None:
        """The length of the message of a vector (n,) of this type; None if the vector decides."""

    def sent(self, vector: Array, message: Message, received: Array) -> Array:
        """The part of v that counts as sent, C(v) = `received`; the rest is the error to feed back."""
        return received


def computed_in(dtype: Any) -> "np.dtype[Any]":
    """The type that vectors of this type are compressed in: their own, or float32 for those of fewer bits.

    >>> computed_in(np.float16), computed_in(np.float64)
    (dtype('float32'), dtype('float64'))
    """
    return np.promote_types(dtype, np.float32)


class LinearCompressor(Compressor):
    """Keeps some entries, which no vector but the generator chooses, and multiplies them with a number.

    Agents whose generators are in the same state keep the same entries, so they can be added on the way.
    """

    @abstractmethod
    def part(self, n: int, rng: np.random.Generator) -> Indices | slice:
        """The entries of a vector (n,) that are kept."""

    @abstractmethod
    def values(self, vector: Array, part: Any) -> Array:
        """C(v) at these entries; it is zero at the others."""


class Quantizer(Compressor):
    """Keeps all entries, in fewer bits each, of which the length of the vector says how many."""

    @abstractmethod
    def message_bytes(self, n: int, dtype: Any) -> int:
        """The length of the message of a vector (n,) of this type."""
