"""Tests of a copy of the program, in a process of their own: which is the first that fails, if one does"""

import contextlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from tests.house import REPOSITORY
from tests.patience import patience

ENOUGH_SECONDS = 25  # of the processor: tests of one mutant
MOST_SECONDS = 120  # of an idle machine's clock; what takes longer does not end
BATCH = 4  # files of tests that are read before the first of them runs


class Outcome(NamedTuple):
    """How tests ended: killed, survived or timed out; by which test, of how many that ran."""

    outcome: str
    by: str = ""
    tests: int = 0


class Noticed:
    """A plugin of pytest: the first test that failed, how many ran, and whether these are enough."""

    def __init__(self) -> None:
        self.by, self.tests, self.is_enough = "", 0, False

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.by = self.by or report.nodeid * report.failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.by = self.by or report.nodeid * report.failed
        self.tests += report.when == "call"

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        if time.process_time() > ENOUGH_SECONDS:
            self.is_enough, item.session.shouldstop = True, "enough"


def run(tree: Path, tests: Sequence[str], without: set[str], until: float) -> Outcome:
    """Run files of tests, but for those to leave out, until one fails, or enough have run, or it is late."""
    tests = [test for test in tests if test not in without]
    until = min(until, time.monotonic() + patience(MOST_SECONDS))
    read, write = os.pipe()
    os.set_blocking(read, False)
    ended, said = (0, 0), b""
    with tempfile.TemporaryDirectory(prefix="d5m-", ignore_cleanup_errors=True) as folder:
        if not (process := os.fork()):
            os.setsid()
            _test(tree, tests, [f"--deselect={test}" for test in sorted(without)], folder, write)
        os.close(write)
        try:
            while not ended[0] and time.monotonic() < until:
                time.sleep(0.05)
                ended = os.waitpid(process, os.WNOHANG)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)  # and what it has started
            with contextlib.suppress(BlockingIOError):
                said = os.read(read, 65_536)
            os.close(read)
            if not ended[0]:
                os.waitpid(process, 0)
    if said:
        by, number = json.loads(said)
        return Outcome("killed" if by else "survived", by, number)
    if ended[0] and os.waitstatus_to_exitcode(ended[1]) != -signal.SIGXCPU:
        return Outcome("killed")  # a test, and with it the process, has ended otherwise
    return Outcome("timed out")


def _test(tree: Path, tests: Sequence[str], options: Sequence[str], folder: str, write: int) -> NoReturn:
    """In a new process, which has the libraries that its parent has imported: run tests, say which failed."""
    resource.setrlimit(resource.RLIMIT_CPU, (3 * ENOUGH_SECONDS, 3 * ENOUGH_SECONDS + 5))
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    os.chdir(tree)
    os.environ |= {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": folder}
    sys.dont_write_bytecode, tempfile.tempdir = True, folder
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(REPOSITORY)))]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "d5ray")]:
        del sys.modules[name]
    noticed = Noticed()
    for begin in range(0, len(tests), BATCH):
        words = [
            "-x",
            "-q",
            "-m",
            "not slow and not full",
            "-p",
            "no:cacheprovider",
            f"--basetemp={folder}/t",
        ]
        try:
            code = pytest.main([*words, *options, *tests[begin : begin + BATCH]], plugins=[noticed])
        except BaseException:
            code = pytest.ExitCode.INTERNAL_ERROR
        if code not in (0, 1, 5) and not noticed.is_enough:  # pytest itself could not go on
            noticed.by = noticed.by or tests[begin]
        if noticed.by or noticed.is_enough:
            break
    os.write(write, json.dumps([noticed.by, noticed.tests]).encode())
    os._exit(0)
