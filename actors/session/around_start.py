"""Contexts around a start of Ray: what it would change in this process, and what its processes inherit"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself, prints a stack and leaves; the program's own handler comes back."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def environment_of(values: dict[str, str]) -> Iterator[None]:
    """Environment variables that the processes started meanwhile inherit."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
