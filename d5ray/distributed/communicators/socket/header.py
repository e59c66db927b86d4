"""Headers that two members exchange before they trust the data: which operation each of them calls"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from d5ray.distributed.communicators.agreement.call_signature import SIGNATURE_BYTES, Signature, disagreement
from d5ray.errors import ConfigurationError

NONE = -1  # bytes, where there is no message in this direction
_LAYOUT = struct.Struct(f"<q{SIGNATURE_BYTES}sqq")
HEADER_BYTES = _LAYOUT.size
_PAIRS = ("exchange", "neighbors", "send", "recv", "messages")  # not called by all members, or not counted


class Header(NamedTuple):
    """The header that one member sends to another one."""

    number: int  # of collectives that it has begun
    call: bytes  # packed
    given: int  # bytes of its message to the other
    awaited: int  # bytes of the other's message to it

    def pack(self) -> bytes:
        """The header as `HEADER_BYTES` bytes."""
        return _LAYOUT.pack(*self)

    @classmethod
    def unpack(cls, words: bytes) -> "Header":
        """The header of packed bytes."""
        return cls(*_LAYOUT.unpack(words))

    def answer(self) -> bytes:
        """The other member's header, packed, if it calls the same operation."""
        return _LAYOUT.pack(self.number, self.call, self.awaited, self.given)


def differ(mine: Header, theirs: Header) -> bool:
    """True if two members are in the collective of the same number, but it is another one."""
    calls = [Signature.unpack(each.call).operation for each in (mine, theirs)]
    return mine.number == theirs.number and mine.call != theirs.call and not {*calls} & {*_PAIRS}


def dispute(
    rank: int, mine: Header, other: int, theirs: Header, past: Mapping[int, Signature]
) -> ConfigurationError:
    """The error for two members whose headers do not fit; past: this member's collectives, by number."""
    own, their = Signature.unpack(mine.call), Signature.unpack(theirs.call)
    if (mine.number, mine.call) == (theirs.number, theirs.call):
        if mine.given != theirs.awaited:
            return _dispute_sizes(own, rank, mine.given, other, theirs.awaited)
        return _dispute_sizes(own, other, theirs.given, rank, mine.awaited)
    if theirs.number < mine.number and their.operation not in _PAIRS:
        own = past.get(theirs.number, own)
    return disagreement({rank: own, other: their})


def _dispute_sizes(call: Signature, giver: int, given: int, taker: int, awaited: int) -> ConfigurationError:
    """The two call the same, but one sends other bytes than the other waits for."""
    if awaited == NONE:
        return ConfigurationError(f"rank {giver} sends in {call} to rank {taker}, which waits for nothing")
    if given == NONE:
        return ConfigurationError(f"rank {taker} waits in {call} for rank {giver}, which sends nothing to it")
    return disagreement(
        {
            giver: call._replace(dtype="uint8", elements=given),
            taker: call._replace(dtype="uint8", elements=awaited),
        }
    )
