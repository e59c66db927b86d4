"""Ctrl-C that Python loses, where it comes during a callback that may not raise: it comes again"""

import signal
import sys
import threading

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
