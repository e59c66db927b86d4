"""Members of a group side by side, in threads of this process."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from d5ray.errors import PeerLost
from tests.patience import patience

T = TypeVar("T")
NOTICED_SECONDS = 5.0  # within which everyone must know what went wrong


@contextmanager
def noticed(least_seconds: float = 0.0) -> Iterator[None]:
    """What everyone notices in time, and not before this many seconds."""
    begin = time.monotonic()
    yield
    assert least_seconds <= time.monotonic() - begin < patience(NOTICED_SECONDS)


def together(function: Callable[[int], T], members: int, seconds: float = 60.0) -> list[T]:
    """function(rank) in a thread for every rank; the results in the order of the ranks.

    What one of them raised is raised; of several errors rather the cause than a peer's `PeerLost`. Threads
    that still run after `seconds` of an idle machine fail the test instead of hanging it.
    """
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def one(rank: int) -> None:
        try:
            results[rank] = function(rank)
        except BaseException as error:  # a skip or a failed check of pytest too
            errors[rank] = error

    threads = [threading.Thread(target=one, args=(rank,), daemon=True) for rank in range(members)]
    for thread in threads:
        thread.start()
    begin = time.monotonic()
    for thread in threads:
        thread.join(max(0.0, begin + patience(seconds) - time.monotonic()))
    running = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    if errors:
        raise min(errors.values(), key=lambda error: isinstance(error, PeerLost))
    assert not running, f"the ranks {running} still run after {seconds} s"
    return [results[rank] for rank in range(members)]
