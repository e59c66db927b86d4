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

import pytest

from d5ray.actors.session import reaper
from tests.patience import patience

SLEEP = "import time; print('up', flush=True); time.sleep(120)"
STUBBORN = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; " + SLEEP
SECONDS = 10.0

Start = Callable[..., "subprocess.Popen[bytes]"]


def alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False


def gone(*pids: int, seconds: float = SECONDS) -> bool:
    """Whether all of them end within this time."""
    deadline = time.monotonic() + patience(seconds)
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


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
    assert gone(*(one.pid for one in ours), seconds=1)
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
        assert gone(ours.pid, seconds=1)
        assert all(alive(one.pid) for one in others)
    finally:
        for one in (ours, *others):
            one.kill()
            one.communicate()


def test_nothing_ends_while_the_pipe_is_open(start: Start, marker: str, folder: Path) -> None:
    """Signals to the reaper, as Ctrl-C in a terminal sends them to all, do not move it."""
    ours = start(SLEEP, marker)
    with reaping(marker, folder) as process:
        ready = "SigIgn:\t"  # of /proc: a mask in hexadecimal
        wanted = sum(1 << (n - 1) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        deadline = time.monotonic() + patience(SECONDS)
        while True:
            status = Path(f"/proc/{process.pid}/status").read_text()
            if int(status.partition(ready)[2].split()[0], 16) & wanted == wanted:
                break
            assert time.monotonic() < deadline, "the reaper does not ignore the signals"
            time.sleep(0.02)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(number)
        time.sleep(0.3)
        assert process.poll() is None and alive(ours.pid) and folder.exists()
        close(process)
        assert process.wait(timeout=patience(SECONDS)) == 0
    assert gone(ours.pid, seconds=1) and not folder.exists()


DRIVER = """
import subprocess, sys, time
file, marker, folder, numbers = sys.argv[1:]
command = [sys.executable, "-S", "-E", file, marker, folder]
keeper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
with open(numbers, "w") as out:
    out.write(str(keeper.pid))
print("up", flush=True)
time.sleep(120)
"""


HALF = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(120,)).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_first_thread_has_ended_still_ends(start: Start, marker: str) -> None:
    """Its environment is gone, and so is its title; its files are open until the last thread has ended."""
    half = start(HALF, marker)
    deadline = time.monotonic() + patience(SECONDS)
    while alive(half.pid):  # its first thread
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert reaper.marked(f"D5RAY_SESSION={marker}".encode()) == []
    assert reaper.still_runs(half.pid)
    half.kill()
    while reaper.still_runs(half.pid):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert half.wait() == -signal.SIGKILL
    assert not reaper.still_runs(half.pid)


def test_a_driver_killed_by_sigkill_leaves_nothing(
    start: Start, marker: str, folder: Path, tmp_path: Path
) -> None:
    """The kernel closes the pipe: the marked child ends, the folder goes, the reaper itself ends."""
    ours, other = start(SLEEP, marker), start(SLEEP)
    numbers = tmp_path / "pid"
    driver = start(DRIVER, None, str(reaper.__file__), marker, str(folder), str(numbers))
    keeper = int(numbers.read_text())
    assert alive(keeper) and alive(ours.pid) and folder.exists()
    driver.kill()
    driver.wait()
    assert gone(keeper, ours.pid)
    assert not folder.exists()
    assert alive(other.pid)


def test_nothing_left_to_end_is_no_error(marker: str, tmp_path: Path) -> None:
    """Neither a process nor a folder: it ends at once."""
    with reaping(marker, tmp_path / "none") as process:
        begin = time.monotonic()
        close(process)
        assert process.wait(timeout=patience(SECONDS)) == 0
    assert time.monotonic() - begin < reaper.PATIENCE_SECONDS


def test_marked_finds_exactly_the_marked(start: Start, marker: str) -> None:
    """The whole entry counts: not a longer marker, not another variable, not this process."""
    ours = [start(SLEEP, marker), start(SLEEP, marker)]
    start(SLEEP, marker + "0")
    start(SLEEP)
    assert sorted(reaper.marked(f"D5RAY_SESSION={marker}".encode())) == sorted(one.pid for one in ours)
    assert reaper.marked(f"OTHER={marker}".encode()) == []
