"""A call in a thread of its own, so that whoever waits for it can have a bound, or look at other things"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_thread(call: Callable[[], T]) -> Future[T]:
    """The result of a call, or what it raised, when that is known; nobody's end waits for the thread."""
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # it is raised where the caller waits
            result.set_exception(error)

    threading.Thread(target=run, name="d5ray-call", daemon=True).start()
    return result
