"""Ctrl-C that Python loses, which comes again, and Ctrl-C that waits until something has been written"""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

AGAIN_SECONDS = 0.05  # in which the callback has ended


def repeat_lost_interrupts() -> None:
    """Let a `KeyboardInterrupt` be raised once more that Python ignores, in a destructor or as it imports."""
    others = sys.unraisablehook

    def told(lost: "sys.UnraisableHookArgs") -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            main = threading.main_thread().ident
            threading.Timer(AGAIN_SECONDS, signal.pthread_kill, (main, signal.SIGINT)).start()
        else:
            others(lost)

    sys.unraisablehook = told


@contextmanager
def held() -> Iterator[None]:
    """Let Ctrl-C, and SIGTERM where it is handled, wait for the end of the block; a second one does not."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    came: list[int] = []

    def give_back() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def hold(number: int, _: FrameType | None) -> None:
        came.append(number)
        give_back()

    for number in handlers:
        signal.signal(number, hold)
    try:
        yield
    finally:
        give_back()
    if came:
        signal.raise_signal(came[0])
