"""Faults by plan that an agent does itself: just before a step, or in a moment of its own"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Final, final

from d5ray.agent.records import AgentRecords
from d5ray.distributed.faults.fault import Fault, unseen
from d5ray.training.events.event import Hooks
from d5ray.training.events.moment import Moment

NUMBERS: Final = {"kill": signal.SIGKILL, "terminate": signal.SIGTERM, "stop": signal.SIGSTOP}
LOOK_SECONDS: Final = 2e-4  # between two looks at what the training does
# What stands on the stack of the thread that trains, in a moment: the end of a file's path, and a function.
STANDS: Final = {
    "evaluation": (("/agent/loop.py", "_evaluate"),),
    "checkpoint": (("/agent/events.py", "checkpoint"),),
    "collective": (
        ("/distributed/communicators/", ""),
        ("/distributed/one_sided/", ""),
        ("/distributed/parameter_server/", ""),
    ),
}
# Wakes a stopped process after some tenths of a second, or ends when that process has ended.
WAKE: Final = (
    "i=0; while [ $i -lt $2 ] && kill -0 $1 2>/dev/null; do sleep 0.1; i=$((i+1)); done; "
    "kill -CONT $1 2>/dev/null"
)

Do = Callable[[Fault], None]


@final
class AgentFaults:
    """The faults of one agent that are still to come; each happens once. do: what does it, where it is."""

    def __init__(self, faults: Sequence[Fault], do: Do, *, again: bool = False) -> None:
        """again: it was started again; what was planned for the step that it begins at has happened."""
        self._left, self._do, self._again = list(faults), do, again
        self._awaited: list[Fault] = []  # the moments of which are looked for

    def arm(self, hooks: Hooks, records: AgentRecords) -> None:
        """Let them happen in the training that calls these hooks."""
        hooks.before_sampling = (lambda moment: self._look(moment, records), *hooks.before_sampling)

    def _look(self, moment: Moment, records: AgentRecords) -> None:
        step = moment.step
        if self._again:
            self._again = False
            self._left = [fault for fault in self._left if (fault.at_step or 0) > step or fault.during]
        for fault in list(self._left):
            if fault.during is None and step == fault.at_step:
                self._left.remove(fault)
                _tell(records, step, fault)
                self._do(fault)
            elif fault.during is not None and step >= (fault.at_step or 0):
                self._left.remove(fault)
                _tell(records, step, fault)
                self._awaited.append(fault)
                _watch(threading.get_ident(), fault.during, partial(self._seen, fault))

    @property
    def unseen(self) -> dict[Fault, str]:
        """The faults that were told of, whose moments have not come, with why they did not happen."""
        return {fault: unseen(fault) for fault in self._awaited}

    def _seen(self, fault: Fault) -> None:
        """Its moment has come."""
        self._awaited.remove(fault)
        self._do(fault)


def left_after(faults: Sequence[Fault], deaths: int) -> tuple[Fault, ...]:
    """The faults of an agent that are still to come when it has died so often by others.

    >>> kills = [Fault("kill", "agent", (1,), at_step=step) for step in (9, 3)]
    >>> [fault.at_step for fault in left_after(kills, 1)]
    [9]
    """
    fatal = sorted((fault for fault in faults if fault.is_fatal), key=lambda fault: fault.at_step or 0)
    happened = fatal[:deaths]
    last = max((fault.at_step or 0 for fault in happened), default=-1)
    return tuple(f for f in faults if f not in happened and (f.is_fatal or (f.at_step or 0) >= last))


def signal_itself(fault: Fault) -> None:
    """Send this process the signal of a fault."""
    pid = os.getpid()
    if fault.kind == "stop" and fault.seconds is not None:
        tenths = str(max(1, round(fault.seconds * 10)))
        subprocess.Popen(["/bin/sh", "-c", WAKE, "wake", str(pid), tenths], start_new_session=True)
    os.kill(pid, NUMBERS[fault.kind])


def _tell(records: AgentRecords, step: int, fault: Fault) -> None:
    """Let the run keep that a fault comes now: afterwards nobody may be there to say it."""
    with suppress(Exception):  # whatever has failed before: the fault happens
        records.tell("fault", step, **fault.described)


def _watch(thread: int, during: str, do: Callable[[], None]) -> None:
    """Do something as soon as this thread is in the moment.

    Between two calls of the agent nothing stands on its stack: what evaluates after an asynchronous training
    is the second.
    """

    def look() -> None:
        while not _stands(sys._current_frames().get(thread), during):
            time.sleep(LOOK_SECONDS)
        do()

    threading.Thread(target=look, name="d5ray-faults", daemon=True).start()


def _stands(frame: FrameType | None, during: str) -> bool:
    while frame is not None:
        code = frame.f_code
        for path, function in STANDS[during]:
            if path in code.co_filename and function in ("", code.co_name):
                return True
        frame = frame.f_back
    return False
