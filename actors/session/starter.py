"""Starts Ray in a thread of its own: Ray waits in C++ for its node, where Python does not hear of Ctrl-C"""

import threading
from collections.abc import Callable
from typing import final

from d5ray.errors import PlacementError

START_SECONDS = 120.0  # in which Ray's own time-outs have passed, where it has them
ABANDONED_SECONDS = 60.0  # for a start that was interrupted to come to its end


@final
class Starter:
    """One start of Ray. Its thread lives as long as Ray does, since the kernel ends Ray's processes with it.

    (They are to die with their parent, prctl's PR_SET_PDEATHSIG, and that is the thread that made them.)
    """

    def __init__(self, start: Callable[[], object], end: Callable[[], object]) -> None:
        """end: called in the thread when a start that was interrupted has come to its end."""
        self._start, self._end = start, end
        self._error: BaseException | None = None
        self._abandoned = False
        self._started, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="d5ray-ray", daemon=True)

    def run(self) -> None:
        """Return when Ray runs; raises what the start raised, and what interrupts this thread at once.

        Ray waits without a bound for a raylet that does not answer: `PlacementError` after `START_SECONDS`.
        """
        try:
            self._thread.start()
            if not self._started.wait(START_SECONDS):
                raise PlacementError(
                    f"Ray did not start within {START_SECONDS:g} s: look at this machine's load, and whether "
                    "its processes gcs_server and raylet were stopped; then start this program anew"
                )
        except BaseException:
            self._abandoned = True
            self._over.set()
            raise
        if self._error is not None:
            self._over.set()
            raise self._error

    def release(self) -> None:
        """Tell the starter that Ray has ended."""
        self._over.set()

    @property
    def under_way(self) -> bool:
        """True if a start that was interrupted has not ended yet."""
        return self._abandoned and not self._started.is_set()

    def settle(self) -> None:
        """Wait for a start that was interrupted; raises `PlacementError` if it does not come to its end."""
        if self._abandoned:
            self._thread.join(ABANDONED_SECONDS)
            if self._thread.is_alive():
                raise PlacementError(
                    f"a start of Ray that was interrupted is still under way after {ABANDONED_SECONDS:g} s: "
                    "start this program anew"
                )

    def _run(self) -> None:
        try:
            self._start()
        except BaseException as error:  # it is raised where the caller waits
            self._error = error
        self._started.set()
        self._over.wait()
        if self._abandoned:
            self._end()
