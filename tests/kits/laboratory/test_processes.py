"""Claims about groups of processes outside Ray: each rank's result, and nothing left when one fails."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons import processes
from tests.patience import patience


def facts(word: str, rank: int) -> dict[str, Any]:
    """What a member says of itself."""
    return {"rank": rank, "word": word, "pid": os.getpid(), "threads": os.environ["OMP_NUM_THREADS"]}


@dataclass
class Fails:
    """Rank 1 fails, after it has left its process id; the others would take a minute."""

    folder: Path

    def __call__(self, rank: int) -> None:
        (self.folder / f"{rank}.pid").write_text(str(os.getpid()))
        if rank == 1:
            while not (self.folder / "0.pid").exists():
                time.sleep(0.01)
            raise RuntimeError("no such device")
        time.sleep(60)


def sleeps(rank: int) -> None:
    """Longer than anybody waits."""
    time.sleep(60)


def test_each_rank_runs_in_a_process_of_its_own_with_one_thread(tmp_path: Path) -> None:
    found = processes.measured(partial(facts, "hello"), tmp_path, 3, seconds=60)
    assert [said["rank"] for said in found] == [0, 1, 2]
    assert len({said["pid"] for said in found} | {os.getpid()}) == 4
    assert {(said["word"], said["threads"]) for said in found} == {("hello", "1")}


def test_a_rank_that_fails_is_told_with_its_error_and_the_others_are_ended(tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(AgentError, match=r"ended with code 1:\n(.|\n)*RuntimeError: no such device"):
        processes.measured(Fails(tmp_path), tmp_path, 2, seconds=60)
    assert time.monotonic() - begin < patience(30)
    pids = [int((tmp_path / f"{rank}.pid").read_text()) for rank in range(2)]
    assert not any(psutil.pid_exists(pid) for pid in pids)


@pytest.mark.full
def test_a_rank_that_is_late_is_ended(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match="not done within 2 s"):
        processes.measured(sleeps, tmp_path, 1, seconds=2)
    assert not [
        child
        for child in psutil.Process().children()
        if "d5ray.kits.laboratory.comparisons.member" in child.cmdline()
    ]


@pytest.mark.full
def test_a_member_ends_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    """Its standard input closes: a killed driver leaves no process behind."""
    starter = (
        "import sys\n"
        "from pathlib import Path\n"
        "from d5ray.kits.laboratory.comparisons import processes\n"
        "from tests.kits.laboratory.test_processes import Fails\n"
        "processes.measured(Fails(Path(sys.argv[1])), Path(sys.argv[1]), 1, seconds=60)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", starter, str(tmp_path)])
    mark = tmp_path / "0.pid"
    _until(lambda: mark.exists() and mark.read_text() != "", 30)
    member = int(mark.read_text())
    assert psutil.pid_exists(member)
    driver.kill()
    driver.wait()
    _until(lambda: not psutil.pid_exists(member), 10)


def _until(condition: Any, seconds: float) -> None:
    deadline = time.monotonic() + patience(seconds)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
