"""Hides from d5ray what Linux has and other systems lack, so that a process looks like macOS to it

    python -m tests.without_linux PROGRAM.py        or        python -m tests.without_linux -c "code"

Hidden are the module fcntl, the folders /proc, /sys and /dev/shm, and the functions of `os`, `select`,
`socket` and `signal` that Linux alone has; sys.platform is darwin. Libraries are loaded before, as they were
built for Linux, and may open those folders.
"""

import builtins
import errno
import io
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HIDDEN = ("/proc/", "/sys/", "/dev/shm/")
FUNCTIONS = {
    os: ("memfd_create", "sched_getaffinity", "sched_setaffinity", "pidfd_open", "eventfd", "posix_fallocate",
         "posix_fadvise", "copy_file_range", "splice", "setns", "unshare", "getrandom",
         "sched_setscheduler", "SCHED_BATCH"),
    select: ("epoll",),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    socket: ("SO_PEERCRED", "TCP_USER_TIMEOUT", "TCP_KEEPIDLE", "SO_BINDTODEVICE"),
}  # fmt: skip
LIBRARIES = (
    "numpy", "torch", "pyarrow.parquet", "pyarrow.compute", "pandas", "duckdb", "sklearn.datasets",
    "scipy.special", "psutil", "ray", "ray.util.metrics", "onnx", "networkx", "threadpoolctl", "asyncio",
    "subprocess", "matplotlib.figure", "dash",
)  # fmt: skip
PASSING = ("pathlib", "os", "io", "glob", "shutil", "codecs", "genericpath", "posixpath", "contextlib")
OPENING = ("open", "stat", "lstat", "listdir", "scandir", "access", "statvfs", "readlink", "mkdir", "unlink")


def hide() -> None:
    """Hide all of it from what is imported and called from now on."""
    for name in LIBRARIES:
        __import__(name)
    _without_module("fcntl")
    for module, names in FUNCTIONS.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    for name in OPENING:
        setattr(os, name, _without_folders(getattr(os, name)))
    io.open = builtins.open = _without_folders(builtins.open)
    sys.platform = "darwin"


def _of_d5ray() -> bool:
    """True if d5ray calls, itself or by way of Python's own modules for paths and files."""
    frame = sys._getframe(2)
    while _top(frame.f_globals) in PASSING and frame.f_back is not None:
        frame = frame.f_back
    return _top(frame.f_globals) in ("d5ray", "tests", "__main__")


def _top(names: dict[str, Any]) -> str:
    return str(names.get("__name__")).partition(".")[0]


def _without_module(hidden: str) -> None:
    """Let d5ray's modules import everything but this one."""
    importing = builtins.__import__

    def imported(name: str, *rest: Any, **named: Any) -> Any:
        if name == hidden and _of_d5ray():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return importing(name, *rest, **named)

    builtins.__import__ = imported


def _without_folders(opening: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for which Linux's folders are not there when d5ray calls it."""

    def opened(path: Any = ".", *rest: Any, **named: Any) -> Any:
        if isinstance(path, str | os.PathLike):
            text = os.fspath(path)
            if isinstance(text, str) and f"{text}/".startswith(HIDDEN) and _of_d5ray():
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), text)
        return opening(path, *rest, **named)

    return opened


def main() -> None:
    """Run the code after -c, or the program, in such a process."""
    hide()
    words = sys.argv[1:]
    code = words[1] if words[0] == "-c" else Path(words[0]).read_text(encoding="utf-8")
    exec(compile(code, "<hidden>", "exec"), {"__name__": "__main__"})


if __name__ == "__main__":
    main()
