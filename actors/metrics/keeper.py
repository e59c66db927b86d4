"""The keeper of a run's aggregator: watches it beside the driver, and starts another in its place"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, final

import psutil
import ray
from ray.exceptions import RayError

from d5ray.actors.metrics.running import CONTROL
from d5ray.actors.remote import SETUP_SECONDS
from d5ray.actors.session import session
from d5ray.errors import AgentError, D5Error, DiskFull, first_line

LOOK_SECONDS: Final = 1.0  # between two looks
WAIT_SECONDS: Final = 0.1  # between two looks at an answer that is to come
END_SECONDS: Final = 2.0  # for a start that is under way to notice that no other is wanted
GONE_SECONDS: Final = 10.0  # for the process of a killed aggregator to be gone


@final
class AggregatorKeeper:
    """A thread that asks the aggregator every second; one that died, or is stuck, gets a successor.

    start_again: starts another actor; ValueError as long as the name is that of the dead. note: keeps an
    event. restored: called with the new actor. send: called at every look. seconds: in which another must
    have come, or a full disk have room. stuck_seconds: without an answer until the aggregator is killed.
    """

    def __init__(
        self,
        start_again: Callable[[], Any],
        note: Callable[..., None],
        restored: Callable[[Any], None],
        send: Callable[[], object],
        seconds: float,
        stuck_seconds: float,
    ) -> None:
        self._start_again, self._note, self._restored, self._send = start_again, note, restored, send
        self._seconds, self._stuck_seconds = seconds, stuck_seconds
        self.actor: Any = None
        self._process: psutil.Process | None = None
        self._failure: D5Error | None = None
        self._full: tuple[float, str] | None = None  # since when the disk is, and what is said of it
        self._over, self._came = threading.Event(), threading.Condition()
        self._thread = threading.Thread(target=self._watch, name="d5ray-aggregator", daemon=True)

    def begin(self, actor: Any) -> None:
        """Watch this actor from now on."""
        self.actor = actor
        self._thread.start()

    def end(self) -> None:
        """Watch no more. Harmless twice, and before `begin`."""
        self._over.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(END_SECONDS)  # it waits longer for a head of Ray that is gone

    @property
    def ended(self) -> bool:
        """True if nobody watches any more, so that no other comes."""
        return self._over.is_set()

    def check(self) -> None:
        """Raise what ends the run: no aggregator can be started, or the disk stays full."""
        if self._failure is not None:
            raise self._failure
        if self._full is not None and time.monotonic() - self._full[0] > self._seconds:
            raise DiskFull(f"{self._full[1]} (for more than {self._seconds:g} s)")

    def another(self, dead: Any) -> bool:
        """Wait until another stands in the place of this one; False where none comes."""
        with self._came:
            self._came.wait_for(lambda: self.actor is not dead or self._ended, self._seconds)
        return self.actor is not dead

    # --------------------------------------------------------------------------------------------------

    @property
    def _ended(self) -> bool:
        return self._failure is not None or self._over.is_set() or session.lost()

    def _watch(self) -> None:
        try:
            while not self._over.wait(LOOK_SECONDS):
                if session.lost():
                    break
                begun = self._process is not None
                bound = self._stuck_seconds if begun else max(SETUP_SECONDS, self._stuck_seconds)
                if reason := self._look(self.actor, bound):
                    self._replace(reason)
                if self._failure is None:
                    self._tell()
        except D5Error as error:  # no other came in time, or the head of Ray is silent
            self._failure = error
        finally:
            with self._came:
                self._came.notify_all()

    def _tell(self) -> None:
        try:
            self._send()
        except D5Error as error:
            self._failure = error

    def _look(self, actor: Any, seconds: float) -> str:
        """Why this actor is no aggregator any more; "" where it answers within these seconds."""
        call = actor.state.options(concurrency_group=CONTROL).remote()
        deadline = time.monotonic() + seconds
        while not ray.wait([call], timeout=WAIT_SECONDS)[0]:
            if self._over.is_set() or session.lost():
                return ""
            if time.monotonic() > deadline:
                return f"it did not answer for {seconds:g} s"
        try:
            pid, full, full_seconds = ray.get(call)
        except RayError as error:
            return "" if session.lost() else first_line(error)
        self._full = (time.monotonic() - full_seconds, full) if full else None
        if self._process is None or self._process.pid != pid:
            with suppress(psutil.Error):  # it is on the driver's node
                self._process = psutil.Process(pid)
        return ""

    def _replace(self, reason: str) -> None:
        """Start another; raises `AgentError` where none comes in time."""
        begin = time.monotonic()
        self._note("aggregator_died", -1, reason=reason)
        while not self._over.is_set() and not session.lost():
            if time.monotonic() - begin > self._seconds:
                raise AgentError(
                    f"the run's aggregator died ({reason}), and no other could be started within "
                    f"{self._seconds:g} s: look at the actors' logs in the Ray dashboard"
                )
            self._kill()
            try:
                actor = self._start_again()
            except ValueError:  # the name is free some time after the death
                self._over.wait(WAIT_SECONDS)
                continue
            if why := self._look(actor, max(self._seconds, self._stuck_seconds)):
                reason = why
                continue
            if self._over.is_set() or session.lost():
                self._drop(actor)
                return
            self._restored(actor)
            self._note("aggregator_restored", -1, seconds=round(time.monotonic() - begin, 3))
            with self._came:
                self.actor = actor
                self._came.notify_all()
            return

    def _drop(self, actor: Any) -> None:
        """End one that nobody asks any more, perhaps before its first answer: the driver needs its files."""
        with suppress(RayError, ValueError):
            ray.kill(actor)
        self._kill()

    def _kill(self) -> None:
        """End the process for good, also one that was stopped: it has the lock of the run's files."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(psutil.Error):
            process.kill()
            process.wait(GONE_SECONDS)
