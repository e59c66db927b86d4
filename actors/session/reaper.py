"""Ends what an embedded Ray leaves behind when its driver dies: a program of its own, in plain Python.

    python -S reaper.py MARKER FOLDER        (reads standard input until the driver is gone)

Ray's own fate sharing misses two daemons when the driver is killed with SIGKILL, and its folder stays.
Every process of an embedded Ray carries `D5RAY_SESSION=MARKER` in its environment, but for those that gave
themselves a title, `ray::…`, which may lie over it: those have files in the folder open. This program is
held by a pipe to the driver and, when that closes, ends those processes and removes the folder. It leaves
when they are gone to the last thread: until then a process holds its files, and the locks on them.
"""

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator

PATIENCE_SECONDS = 5.0  # with a process that cannot be killed


def marked(marker: bytes) -> list[int]:
    """The ids of all processes that carry the marker, without this one."""
    found = []
    for name in _processes():
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123
            if marker in file.read().split(b"\0"):
                found.append(int(name))
    return found


def titled(folder: str) -> list[int]:
    """The ids of all processes that call themselves `ray::…` and have a file in the folder open."""
    found = []
    for name in _processes():
        with contextlib.suppress(OSError):
            if name.isdigit() and _is_titled(name) and any(_within(folder, name)):
                found.append(int(name))
    return found


def _processes() -> list[str]:
    """The names in /proc; none where there is no Linux: there Ray's own fate sharing has to do."""
    with contextlib.suppress(FileNotFoundError):
        return os.listdir("/proc")  # noqa: PTH208 - starts in milliseconds, without pathlib
    return []


def still_runs(pid: int) -> bool:
    """True if a process has threads that still run.

    One that was killed while it writes has lost its environment and its title, and so is neither marked nor
    titled any more, long before the kernel closes its files.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            state = file.read().rpartition(b")")[2].split()[0]
        return state not in b"ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1  # noqa: PTH208
    except OSError:
        return False


def _is_titled(name: str) -> bool:
    with open(f"/proc/{name}/cmdline", "rb") as file:  # noqa: PTH123
        return file.read(5) == b"ray::"


def _within(folder: str, name: str) -> Iterator[bool]:
    """True or False for each file that a process has open: is it in the folder?"""
    for number in os.listdir(f"/proc/{name}/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # closed meanwhile
            yield os.readlink(f"/proc/{name}/fd/{number}").startswith(f"{folder}/")  # noqa: PTH115


def main() -> None:
    """Wait for the driver's end, then clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    marker = f"D5RAY_SESSION={sys.argv[1]}".encode()
    folder = sys.argv[2]
    sys.stdin.buffer.read()
    patience = time.monotonic() + PATIENCE_SECONDS
    killed: set[int] = set()
    while True:
        alive = {*marked(marker), *titled(folder)}
        killed |= alive
        if not any(map(still_runs, killed)) and not os.path.exists(folder):  # noqa: PTH110
            break
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)  # again, if a dying process still wrote into it
        if time.monotonic() > patience:
            break
        time.sleep(0.02)


if __name__ == "__main__":
    main()
