"""Claims about the reaper: when the driver is gone, what it left is gone within moments, and nothing else."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from d5ray.actors.session import reaper
from tests.conftest import wait_until
from tests.patience import patience

SLEEP = "import time; print('up', flush=True); time.sleep(120)"
STUBBORN = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; " + SLEEP
SECONDS = 10.0

Start = Callable[..., "subprocess.Popen[bytes]"]


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    return psutil.pid_exists(pid) and bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


def gone(*pids: int) -> bool:
    return not any(map(alive, pids))


@pytest.fixture
def start() -> Iterator[Start]:
    """A Python process of this code, with this marker in its environment or none; has started when given."""
    processes: list[subprocess.Popen[bytes]] = []

    def call(code: str, marker: str | None = None, *arguments: str) -> "subprocess.Popen[bytes]":
        environment = {key: value for key, value in os.environ.items() if key != "D5RAY_SESSION"}
        if marker is not None:
            environment["D5RAY_SESSION"] = marker
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", code, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        processes.append(process)
        assert process.stdout is not None and process.stdout.readline()
        return process

    yield call
    for process in processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def marker() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a session leaves: files in folders, and a link out of it."""
    made = tmp_path / "session"
    (made / "logs").mkdir(parents=True)
    (made / "logs" / "raylet.out").write_text("text")
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    (made / "link").symlink_to(kept)
    return made


@contextlib.contextmanager
def reaping(marker: str, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The reaper as the session starts it, held by its standard input."""
    command = [sys.executable, "-S", "-E", str(reaper.__file__), marker, str(folder)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert process.stdin is not None
    try:
        yield process
    finally:
        process.stdin.close()
        process.kill()
        process.wait()


def close(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.close()


def test_marked_processes_end_and_the_folder_goes_when_the_pipe_closes(
    start: Start, marker: str, folder: Path
) -> None:
    """Also those that ignore every signal one can ignore; the others live, and so does what a link names."""
    ours = [start(SLEEP, marker), start(STUBBORN, marker)]
    others = [start(SLEEP), start(SLEEP, marker + "0"), start(SLEEP, uuid.uuid4().hex)]
    with reaping(marker, folder) as process:
        close(process)
        assert process.wait(timeout=patience(SECONDS)) == 0
    wait_until(lambda: gone(*(one.pid for one in ours)), 1)
    assert [one.wait() for one in ours] == [-signal.SIGKILL] * 2
    assert all(alive(one.pid) for one in others)
    assert not folder.exists()
    assert (folder.parent / "kept" / "file").read_text() == "kept"


def test_processes_whose_title_lies_over_the_marker_end(marker: str, folder: Path, tmp_path: Path) -> None:
    """Known by a file of the session that is open; who merely reads one, or is another Ray's, lives."""

    def begin(name: str, file: Path) -> "subprocess.Popen[bytes]":
        command = [name, "-S", "-c", f"kept = open({str(file)!r}); {SLEEP}"]
        process = subprocess.Popen(command, executable=sys.executable, stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline()
        return process

    log, elsewhere = folder / "logs" / "raylet.out", tmp_path / "kept" / "file"
    ours = begin("ray::DashboardAgent", log)
    others = [begin("tail", log), begin("ray::DashboardAgent", elsewhere)]
    try:
        with reaping(marker, folder) as process:
            close(process)
            assert process.wait(timeout=patience(SECONDS)) == 0
        wait_until(lambda: gone(ours.pid), 1)
        assert all(alive(one.pid) for one in others)
    finally:
        for one in (ours, *others):
            one.kill()
            one.communicate()


def test_nothing_ends_while_the_pipe_is_open(start: Start, marker: str, folder: Path) -> None:
    """Signals to the reaper, as Ctrl-C in a terminal sends them to all, do not move it."""
    ours = start(SLEEP, marker)
    with reaping(marker, folder) as process:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        wanted = sum(1 << (n - 1) for n in numbers)

        def ignores() -> bool:
            status = Path(f"/proc/{process.pid}/status").read_text()
            return int(status.partition("SigIgn:\t")[2].split()[0], 16) & wanted == wanted  # in hexadecimal

        wait_until(ignores, SECONDS)
        for number in numbers:
            process.send_signal(number)
        time.sleep(0.3)
        assert process.poll() is None and alive(ours.pid) and folder.exists()
        close(process)
        assert process.wait(timeout=patience(SECONDS)) == 0
    wait_until(lambda: gone(ours.pid), 1)
    assert not folder.exists()


HALF = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(120,)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_still_ends(start: Start, marker: str) -> None:
    """Its environment is gone, and so is its title; its files are open until the last thread has ended."""
    half = start(HALF, marker)
    wait_until(lambda: gone(half.pid), SECONDS)  # its first thread
    assert reaper.marked(f"D5RAY_SESSION={marker}".encode()) == []
    assert reaper.still_runs(half.pid)
    half.kill()
    wait_until(lambda: not reaper.still_runs(half.pid), SECONDS)
    assert half.wait() == -signal.SIGKILL
    assert not reaper.still_runs(half.pid)
