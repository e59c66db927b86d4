"""A plugin of pytest that notes what became of each test, and leaves out those that need not run again

`-p tests.suites.record --record FILE --leave-out FILE --only FILE`. A line of the record is one JSON object:
a test with its outcome, seconds and first error, or a process with the most memory that it held, and the test
by which it became so much. A test is noted as failed before it runs, so that one that ends its process is.
"""

import atexit
import gc
import resource
from collections import defaultdict
from pathlib import Path

import pytest

from tests.suites.outcomes import file_of, note

WORSE = ("passed", "xfailed", "skipped", "failed")  # the worst of a test's parts is its outcome


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, metavar="FILE", help="note what becomes of each test")
    parser.addoption("--leave-out", type=Path, metavar="FILE", help="a test a line that does not run")
    parser.addoption("--only", type=Path, metavar="FILE", help="a test, or a file of tests, a line that runs")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("record"):
        config.pluginmanager.register(Recorder(config), "recorder of outcomes")
    gc.disable()  # a room imports a million objects that stay: to look through them takes a sixth of its time
    atexit.register(gc.freeze)  # which is behind pytest's own last look


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)  # what marks say has been done
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done, only = (_lines(config.getoption(name)) for name in ("leave_out", "only"))
    runs, left = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        wanted = not only or item.nodeid in only or file_of(item.nodeid) in only
        (runs if wanted and item.nodeid not in done else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = runs


def _lines(file: Path | None) -> set[str]:
    return set(file.read_text(encoding="utf-8").splitlines()) if file and file.exists() else set()


class Recorder:
    """Appends to the record, to which other processes append too."""

    def __init__(self, config: pytest.Config) -> None:
        self.file: Path = config.getoption("record")
        self.places = " ".join(config.args)
        self.parts: dict[str, list[tuple[str, float, str]]] = defaultdict(list)
        self.peak, self.largest = 0, ""  # the most memory, in kB, and the test by which it became so much

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        note(self.file, test=nodeid, outcome="failed", seconds=0.0, error="its process ended while it ran")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcome = "xfailed" if report.skipped and hasattr(report, "wasxfail") else report.outcome
        self.parts[report.nodeid].append((outcome, report.duration, _first_error(report)))
        if report.when == "teardown":
            parts = self.parts.pop(report.nodeid)
            note(
                self.file,
                test=report.nodeid,
                outcome=max((part[0] for part in parts), key=WORSE.index),
                seconds=round(sum(part[1] for part in parts), 2),
                error=next((part[2] for part in parts if part[2]), ""),
            )
            if (peak := resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) > self.peak:
                self.peak, self.largest = peak, report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            note(self.file, test=report.nodeid, outcome="failed", seconds=0.0, error=_first_error(report))

    def pytest_sessionfinish(self) -> None:
        note(self.file, process=self.places, peak_bytes=self.peak * 1024, largest=self.largest)


def _first_error(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The first line that says what is wrong, as pytest's own summary has it."""
    if not report.failed:
        return ""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = str(crash.message if crash else report.longrepr).strip().splitlines()
    return lines[0][:300] if lines else "no message"
