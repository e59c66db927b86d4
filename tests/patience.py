"""Time-outs of tests: given for an idle machine, and scaled to the current load"""

import contextlib
import os
import time
from functools import cache
from pathlib import Path

WORK_SECONDS = 0.015  # for `_work` on a core of 2023 that has nothing else to do
MOST = 30.0  # a test that hangs shall end


def patience(seconds: float) -> float:
    """For what ends by itself, and for bounds within which something must happen.

    It looks at the machine at every call, since others come and go.
    """
    return seconds * min(MOST, _slower() * _crowd())


@cache
def _slower() -> float:
    """How many times longer this processor takes for a piece of Python; at least 1."""
    return max(1.0, min(_work() for _ in range(3)) / WORK_SECONDS)


def _work() -> float:
    """The processor's seconds, whatever else runs."""
    begin = time.thread_time()
    sum(number * number for number in range(200_000))
    return time.thread_time() - begin


def _crowd() -> float:
    """How many want each core, over the last minute or now; at least 1."""
    want = os.getloadavg()[0]
    with contextlib.suppress(OSError):  # Linux alone says it
        want = max(want, float(Path("/proc/loadavg").read_text("ascii").split()[3].split("/")[0]))
    return max(1.0, want / (os.cpu_count() or 1))
