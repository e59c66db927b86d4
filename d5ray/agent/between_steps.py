"""Calls from other threads that look at an agent's model, done between two steps, when none changes it"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, final

from d5ray.errors import AgentError

T = TypeVar("T")


@dataclass(eq=False)
class _Request:
    """Something to do, and what came of it."""

    call: Callable[[], Any]
    done: threading.Event = field(default_factory=threading.Event)
    result: Any = None
    error: BaseException | None = None

    def answer(self) -> None:
        try:
            self.result = self.call()
        except Exception as error:  # whoever asked is told
            self.error = error
        self.done.set()


@final
class BetweenSteps:
    """Does what other threads ask for: at once while nobody trains, otherwise before the next step.

    wanted: whether something waits to be done; the training looks at it before every step, and calls `serve`.
    """

    def __init__(self) -> None:
        self.wanted = False
        self._lock = threading.Lock()
        self._requests: deque[_Request] = deque()
        self._trains = False

    def begin(self) -> None:
        """A training begins: its thread alone may touch the model from now on."""
        with self._lock:
            self._trains = True

    def end(self) -> None:
        """The training has ended."""
        with self._lock:
            self._trains = False
        self.serve()

    def serve(self) -> None:
        """Do what was asked for; called by the thread that trains."""
        self.wanted = False
        while self._requests:
            self._requests.popleft().answer()

    def do(self, call: Callable[[], T], seconds: float) -> T:
        """The result of a call while no step is under way; what it raises is raised here.

        seconds: for a step that is under way to end; `AgentError` where it does not.
        """
        with self._lock:
            if not self._trains:
                return call()
            request = _Request(call)
            self._requests.append(request)
            self.wanted = True
        if not request.done.wait(seconds):
            raise AgentError(f"no step ended within {seconds:g} s, and only then the model can be looked at")
        if request.error is not None:
            raise request.error
        result: T = request.result
        return result
