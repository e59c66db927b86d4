"""The gate: what fails once is flaky and named, what fails twice is red, and a suite can be resumed."""

import re
from pathlib import Path

import pytest

from tests.suites.__main__ import Suite, run
from tests.suites.rooms import Room

BEGINNING = '''
from pathlib import Path

def times(name):
    """How many times this test has run, this time included."""
    with Path(__file__).with_name(name).open("a+") as file:
        file.write(".")
        return file.tell()

def test_that_passes():
    times("passes")
'''
FLAKY = """
def test_flaky_{number}():
    assert times("flaky-{number}") > 1, "only the first time"
"""
BROKEN = """
def test_broken():
    assert times("broken") > 2, "the first two times"
"""

GONE = """
import pytest

@pytest.mark.parametrize("run", [times("collected")])
def test_of_a_name(run):
    assert run > 1, f"name {run}"
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A folder with one file of tests."""
    (tmp_path / "test_some.py").write_text(BEGINNING)
    return tmp_path


def add(folder: Path, text: str) -> None:
    with (folder / "test_some.py").open("a") as file:
        file.write(text)


def result(folder: Path, resume: bool = False) -> int:
    return run(
        "some", Suite(("-p", "no:dash"), (Room((".",)),), folder=folder), "abc", resume, folder / "results"
    )


def last_line(folder: Path) -> str:
    return (folder / "results" / "SUMMARY.md").read_text().splitlines()[-1]


def test_what_fails_only_once_is_named_with_its_error(suite: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Green; the last lines name it, and the seconds of each part of the suite; the summary counts it."""
    add(suite, FLAKY.format(number=1))
    assert result(suite) == 0
    out = capfd.readouterr().out
    assert "test_some.py::test_flaky_1 - AssertionError: only the first time" in out
    assert re.search(r"^core \d+ s.*; together 0\.\d min$", out, re.MULTILINE)
    assert out.endswith("2 passed, 0 failed, 0 skipped\n")
    assert last_line(suite).startswith("| abc | some | 2 | 0 | 1 | 0 |")


@pytest.mark.full
def test_what_fails_twice_is_red_and_is_all_that_runs_when_resumed(suite: Path) -> None:
    """A test that fails in both runs makes the suite red; where it passes at last, the others do not run."""
    add(suite, BROKEN)
    assert result(suite) == 1
    assert last_line(suite).startswith("| abc | some | 1 | 1 | 0 | 0 |")
    assert result(suite, resume=True) == 0
    assert last_line(suite).startswith("| abc | some | 2 | 0 | 0 | 0 |")
    assert (suite / "passes").read_text() == "."
    assert result(suite, resume=True) == 0  # nothing is left to do
    assert (suite / "broken").read_text() == "..."


@pytest.mark.full
def test_four_flaky_tests_are_red(suite: Path) -> None:
    """Three may be chance; a suite with more of them cannot be believed."""
    for number in range(4):
        add(suite, FLAKY.format(number=number))
    assert result(suite) == 1
    assert last_line(suite).startswith("| abc | some | 5 | 0 | 4 | 0 |")


def test_a_test_that_is_gone_at_its_second_chance_takes_no_others(
    suite: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its name was made at the first run alone: it is red, and named; a flaky one beside it is flaky."""
    add(suite, FLAKY.format(number=1) + GONE)
    assert result(suite) == 1
    assert last_line(suite).startswith("| abc | some | 2 | 1 | 1 | 0 |")
    out = capfd.readouterr().out
    assert "failed, and did not run again: test_some.py::test_of_a_name[1] - AssertionError: name 1" in out
    assert "flaky, passed alone: test_some.py::test_flaky_1" in out


@pytest.mark.full
def test_what_ends_a_process_of_pytest_is_red(suite: Path) -> None:
    """A test that kills its process each time is no pass, and the others' outcomes are kept."""
    add(suite, "def test_kills():\n    import os\n    os.kill(os.getpid(), 9)\n")
    assert result(suite) == 1
    assert "| abc | some | 1 | 1 |" in last_line(suite)


@pytest.mark.full
def test_a_file_that_cannot_be_imported_is_red(suite: Path) -> None:
    """What is not collected is not passed."""
    add(suite, "import nothing_of_this_name\n")
    assert result(suite) == 1


@pytest.mark.full
def test_a_crash_behind_the_last_test_is_told_of_and_green(
    suite: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    add(suite, "import atexit, os\natexit.register(os.kill, os.getpid(), 11)\n")
    assert result(suite) == 0 and "a crash behind the last test (-11)" in capfd.readouterr().out
