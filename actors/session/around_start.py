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


@contextlib.contextmanager
def group_of_their_own() -> Iterator[None]:
    """Ray's processes that are started meanwhile form a process group: signals to this one's are not theirs.

    SIGTERM to a group would end the raylet before this process, and Ray then ends this one without a word.
    The function that is wrapped is private to Ray, which calls it in each of these processes, on Linux.
    """
    from d5ray.actors.session import ray_private  # noqa: PLC0415 - Ray takes a while

    usual = ray_private.at_start_of_processes()
    if usual is None:
        yield
        return

    def grouped() -> None:
        usual()
        os.setpgid(0, 0)

    ray_private.start_processes_by(grouped)
    try:
        yield
    finally:
        ray_private.start_processes_by(usual)
