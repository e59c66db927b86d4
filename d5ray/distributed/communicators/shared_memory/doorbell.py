"""Waits for words in shared memory that other members set: look, yield, then sleep until a doorbell rings"""

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from typing import final

from d5ray.distributed.communicators.agreement.call_signature import SIGNATURE_BYTES, Signature, disagreement
from d5ray.distributed.communicators.shared_memory.arena import LINE_WORDS, Arena
from d5ray.distributed.communicators.shared_memory.bounded_wait import WaitGuard
from d5ray.errors import ConfigurationError, D5Error

NAP_SECONDS = 0.02  # the longest sleep without a look around
LOOKS = 16  # before the core is offered to others, which costs no more than a few looks if nobody wants it
YIELD_SECONDS = 200e-6  # before it sleeps
SYS_FUTEX, FUTEX_WAIT, FUTEX_WAKE = 202, 0, 1  # on x86-64; the wait is one between processes

_C = ctypes.CDLL(None)
_syscall = _C.syscall
_syscall.argtypes = (
    ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p,
    ctypes.c_uint32,
)  # fmt: skip
_yield = _C.sched_yield  # gives up the interpreter's lock too, which os.sched_yield does not in all versions
HEARD, AWAITED, CALL = 2, 3, 4  # words of a member's line, after its doorbell and whether it sleeps


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_NAP = _Timespec(0, int(NAP_SECONDS * 1e9))


@final
class Doorbells:
    """A doorbell for every member: it sleeps on its own, others ring it when they change what it waits for.

    A line of words for each member: the doorbell, a futex that takes another value with every ring; whether
    the member sleeps; then what `DeadlockDetector` needs. Whoever changes a flag looks for sleepers after a
    fence, whoever goes to sleep looks at the flags after a fence, so that one of the two sees the other.
    """

    def __init__(self, arena: Arena, guard: WaitGuard) -> None:
        self._words, self._first, self._address = arena.words, arena.doorbells, arena.address
        self._rank = arena.rank
        self._others = [other for other in range(arena.size) if other != arena.rank]
        self._guard = guard
        self._deadlock = DeadlockDetector(arena)
        self._rings = 0
        self._lock = threading.Lock()

    def fence(self) -> None:
        """Let no later load overtake an earlier store, as a locked instruction does."""
        self._lock.acquire()
        self._lock.release()

    def ring(self, member: int) -> None:
        """Wake a member if it sleeps."""
        self.fence()
        self._wake(member)

    def ring_all(self) -> None:
        """Wake all that sleep; after a fence already."""
        for member in self._others:
            self._wake(member)

    def wait(self, ready: Callable[[], bool], awaited: Callable[[], Sequence[int]], call: Signature) -> None:
        """Wait until `ready` says so; `awaited` tells for which members this one waits, in this call."""
        for _ in range(LOOKS):
            if ready():
                return
        until = time.monotonic() + YIELD_SECONDS
        while time.monotonic() < until:
            _yield()
            if ready():
                return
        self._sleep(ready, awaited, call)

    def _sleep(
        self, ready: Callable[[], bool], awaited: Callable[[], Sequence[int]], call: Signature
    ) -> None:
        begin = time.monotonic()
        doorbell = self._first + self._rank * LINE_WORDS
        self._words[doorbell + 1] = 1
        try:
            while True:
                self.fence()
                heard = self._words[doorbell]
                if ready():
                    return
                self._look(begin, awaited(), heard, call)
                nap = ctypes.byref(_NAP)
                _syscall(SYS_FUTEX, self._address + 8 * doorbell, FUTEX_WAIT, heard, nap, None, 0)
        finally:
            self._words[doorbell + 1] = 0
            self._deadlock.withdraw()
            self._guard.waiting = None

    def _look(self, begin: float, awaited: Sequence[int], heard: int, call: Signature) -> None:
        """Raise if this wait can have no good end."""
        self._guard.look(begin, awaited, call)
        if time.monotonic() > begin + NAP_SECONDS:
            self._guard.waiting = awaited, call
            self._deadlock.declare(heard, awaited[0], call)
            if (error := self._deadlock.between(awaited, self._wake)) is not None:
                raise self._guard.fail(error)

    def _wake(self, member: int) -> int:
        """Ring if the member sleeps; gives the value of the doorbell, unlike that of any other ring."""
        doorbell = self._first + member * LINE_WORDS
        if not self._words[doorbell + 1]:
            return 0
        self._rings = (self._rings + 1) % 2**20
        self._words[doorbell] = value = (self._rank % 2**11 + 1) * 2**20 + self._rings
        _syscall(SYS_FUTEX, self._address + 8 * doorbell, FUTEX_WAKE, 1, None, None, 0)
        return value


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
