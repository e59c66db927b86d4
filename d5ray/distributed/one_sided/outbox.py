"""Outbox: letters on their way to one other agent, sent in the background"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, final

from d5ray.distributed.one_sided.peers import Letter
from d5ray.errors import PeerLost

OUTBOX_LETTERS: Final = 64  # that may be on their way to one agent before `put` waits


@final
class Outbox:
    """Sends letters to one agent in a thread, one after the other."""

    def __init__(self, send: Callable[[Letter], None]) -> None:
        self._queue: SimpleQueue[Letter | None] = SimpleQueue()
        self._room = threading.Semaphore(OUTBOX_LETTERS)
        self._under_way = 0
        self._idle = threading.Condition()
        self._send = send
        threading.Thread(target=self._run, name="d5ray-outbox", daemon=True).start()

    def put(self, letter: Letter, seconds: float) -> None:
        """Let a letter be sent; `PeerLost` when there is no room for it for so long."""
        if not self._room.acquire(timeout=seconds):
            raise PeerLost(None, f"{OUTBOX_LETTERS} letters were not taken in within {seconds:g} s")
        with self._idle:
            self._under_way += 1
        self._queue.put(letter)

    @property
    def idle(self) -> bool:
        """True if no message is under way."""
        with self._idle:
            return not self._under_way

    def drain(self, seconds: float) -> None:
        """Return when all letters have been sent, or after so long."""
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way, timeout=seconds)

    def close(self) -> None:
        """End the thread, when what was put is sent."""
        self._queue.put(None)

    def _run(self) -> None:
        while (letter := self._queue.get()) is not None:
            self._send(letter)
            self._room.release()
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()
