"""Signatures of calls: each member's is compared with the others' before data is trusted"""

import struct
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from d5ray.errors import ConfigurationError

SIGNATURE_BYTES = 32
_LAYOUT = struct.Struct("<14s10sq")  # operation with its detail, dtype, elements
assert _LAYOUT.size == SIGNATURE_BYTES

OPERATIONS = ("sum", "mean", "min", "max")
_SHORT = {
    "allreduce": "ar", "reduce_scatter": "rs", "all_gather": "ag", "all_to_all": "aa", "broadcast": "bc",
    "barrier": "ba", "exchange": "ex", "neighbors": "ne", "send": "sr", "recv": "sr", "messages": "me",
}  # fmt: skip
_LONG = {short: long for long, short in _SHORT.items()} | {"sr": "send/recv"}


class Signature(NamedTuple):
    """An operation as one member called it."""

    operation: str  # of `Communicator`'s methods
    detail: str  # the reduction, the root or the tag; at most eleven characters
    dtype: str
    elements: int

    def __str__(self) -> str:
        return (
            f"{self.operation} {self.detail}".rstrip() + f" of {self.elements:,} × {self.dtype or 'nothing'}"
        )

    def pack(self) -> bytes:
        """The signature as 32 bytes, equal exactly when what both ends must agree on is equal."""
        word = f"{_SHORT[self.operation]}:{self.detail}"
        return _LAYOUT.pack(word.encode(), self.dtype.encode(), self.elements)

    @classmethod
    def unpack(cls, packed: bytes) -> "Signature":
        """The signature of packed bytes."""
        word, dtype, elements = _LAYOUT.unpack(packed)
        short, _, detail = word.rstrip(b"\0").decode().partition(":")
        return cls(_LONG[short], detail, dtype.rstrip(b"\0").decode(), elements)


packed = lru_cache(maxsize=1024)(Signature.pack)  # a call as it travels


def signature_of(operation: str, detail: object, flat: Any) -> Signature:
    """The signature of an operation on a flat native array; None stands for no array."""
    if flat is None:
        return Signature(operation, str(detail), "", 0)
    return Signature(operation, str(detail), _name(flat.dtype), len(flat))


@cache
def _name(dtype: Any) -> str:
    """NumPy takes long to spell a type."""
    return str(dtype).rpartition(".")[2]


def disagreement(calls: Mapping[int, Signature]) -> ConfigurationError:
    """The error for members (by rank) that called different things."""
    by_rank = "; ".join(f"rank {rank}: {calls[rank]}" for rank in sorted(calls))
    return ConfigurationError(
        f"the members of a group called different operations ({by_rank}): every member must call the same, "
        "with arrays of the same size and type"
    )
