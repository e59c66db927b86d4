"""Two members of a node that wait for each other: found out while they sleep, long before the time-out"""

from collections.abc import Callable, Sequence
from typing import final

from d5ray.distributed.communicators.agreement.call_signature import SIGNATURE_BYTES, Signature, disagreement
from d5ray.distributed.communicators.shared_memory.arena import LINE_WORDS, Arena
from d5ray.errors import ConfigurationError, D5Error

HEARD, AWAITED, CALL = 2, 3, 4  # words of a member's line, after its doorbell and whether it sleeps


@final
class DeadlockDetector:
    """A member that sleeps says in the line of its doorbell for whom, in which call, and since which ring.

    It says so when it has found its wait unfulfilled. Whoever finds a member asleep that it waits for, and
    that waits for it, rings that member: if it looks again, and says the same, both wait for ever.
    """

    def __init__(self, arena: Arena) -> None:
        self._words, self._memory, self._rank = arena.words, arena.memory, arena.rank
        self._lines = [arena.doorbells + member * LINE_WORDS for member in range(arena.size)]
        self._rung: dict[int, int] = {}  # whom this member has rung during this wait, to which value

    def declare(self, heard: int, awaited: int, call: Signature) -> None:
        """Tell that this member goes to sleep."""
        words, line = self._words, self._lines[self._rank]
        words[line + AWAITED] = 0  # nobody reads what follows while it changes
        words[line + HEARD] = heard
        begin = 8 * (line + CALL)
        self._memory[begin : begin + SIGNATURE_BYTES] = call.pack()
        words[line + AWAITED] = awaited + 1

    def withdraw(self) -> None:
        """Tell that this member waits no longer."""
        self._words[self._lines[self._rank] + AWAITED] = 0
        self._rung.clear()

    def between(self, awaited: Sequence[int], ring: Callable[[int], int]) -> D5Error | None:
        """The error, if one of the members awaited waits for this one, which has declared its own wait.

        ring: gives the value of the doorbell.
        """
        for other in awaited:
            line = self._lines[other]
            doorbell, heard = self._words[line], self._words[line + HEARD]
            if self._words[line + AWAITED] == self._rank + 1 and heard == doorbell:
                if self._rung.get(other) == doorbell and self._unrung():
                    return _error({rank: self._call(rank) for rank in (self._rank, other)})
                self._rung[other] = ring(other)
        return None

    def _unrung(self) -> bool:
        line = self._lines[self._rank]
        return bool(self._words[line + HEARD] == self._words[line])

    def _call(self, member: int) -> Signature:
        begin = 8 * (self._lines[member] + CALL)
        return Signature.unpack(self._memory[begin : begin + SIGNATURE_BYTES])


def _error(calls: dict[int, Signature]) -> D5Error:
    if len(set(calls.values())) > 1:
        return disagreement(calls)
    one, other = sorted(calls)
    return ConfigurationError(
        f"the ranks {one} and {other} of a group wait for each other in {calls[one]}: let one of them send "
        "while the other receives, or exchange in one operation"
    )
