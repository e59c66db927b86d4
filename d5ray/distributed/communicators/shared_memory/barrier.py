"""The point where all members of a group on one node arrive, say what they call, and go on together"""

import struct
from typing import Any, final

from d5ray.distributed.communicators.agreement.call_signature import (
    SIGNATURE_BYTES,
    Signature,
    disagreement,
    packed,
)
from d5ray.distributed.communicators.shared_memory.arena import LINE_WORDS, PARITIES, Arena
from d5ray.distributed.communicators.shared_memory.bounded_wait import WaitGuard
from d5ray.distributed.communicators.shared_memory.doorbell import Doorbells
from d5ray.distributed.communicators.shared_memory.segments import NOWHERE, Place

_HEADER = struct.Struct(f"<qq8x{SIGNATURE_BYTES}s")  # where the array lies and what is called, after the step
_CALL_AT = 8 * LINE_WORDS - SIGNATURE_BYTES


@final
class Barrier:
    """A barrier that compares what its members call.

    A line of words for each member and parity of the step: the step that it arrived at, then its header,
    which is written first. Who arrives last rings the others. A line is written again two steps later, when
    everybody has read it: nobody is further ahead than one step.
    """

    def __init__(self, arena: Arena, doorbells: Doorbells, guard: WaitGuard) -> None:
        self._memory, self._words, self._rank = arena.memory, arena.words, arena.rank
        self._doorbells, self._guard = doorbells, guard
        members = range(arena.size)
        self._lines = [
            [arena.lines + (parity * arena.size + member) * LINE_WORDS for member in members]
            for parity in range(PARITIES)
        ]
        self._written: list[Any] = [None] * PARITIES
        self.step = 0

    def wait(self, call: Signature, place: Place = NOWHERE) -> None:
        """Return when all members are here; all raise `ConfigurationError` if they call different things.

        place: where this member's array lies, for `offsets`.
        """
        self._guard.check()
        self.step = step = self.step + 1
        words, lines = self._words, self._lines[step % PARITIES]
        header = (call, place)
        if self._written[step % PARITIES] != header:
            _HEADER.pack_into(self._memory, 8 * lines[self._rank] + 8, *place, packed(call))
            self._written[step % PARITIES] = header
        words[lines[self._rank]] = step
        self._doorbells.fence()
        missing = [line for line in lines if words[line] < step]
        if missing:
            self._await(call, step, missing, lines)
        else:
            self._doorbells.ring_all()
        self._compare(call, lines)

    def offsets(self) -> list[int]:
        """The offsets of the members' arrays in one allocation, by rank; empty if not all are in the same."""
        words, lines = self._words, self._lines[self.step % PARITIES]
        allocation = words[lines[self._rank] + 1]
        if not allocation or any(words[line + 1] != allocation for line in lines):
            return []
        return [words[line + 2] for line in lines]

    def _await(self, call: Signature, step: int, missing: list[int], lines: list[int]) -> None:
        words = self._words

        def ready() -> bool:
            while missing and words[missing[-1]] >= step:
                missing.pop()
            return not missing

        self._doorbells.wait(ready, lambda: [lines.index(line) for line in missing], call)

    def _compare(self, call: Signature, lines: list[int]) -> None:
        memory, expected = self._memory, packed(call)
        for line in lines:
            begin = 8 * line + _CALL_AT
            if memory[begin : begin + SIGNATURE_BYTES] != expected:
                raise self._guard.fail(disagreement(self._calls(lines)))

    def _calls(self, lines: list[int]) -> dict[int, Signature]:
        begins = [8 * line + _CALL_AT for line in lines]
        return {
            rank: Signature.unpack(self._memory[begin : begin + SIGNATURE_BYTES])
            for rank, begin in enumerate(begins)
        }
