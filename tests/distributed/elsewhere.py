"""Functions in processes of their own, to be killed: a pipe leads to each"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Elsewhere:
    """A function that runs in another process; it got its end of the pipe as the first argument."""

    process: Any
    pipe: Any

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def tell(self, what: object) -> None:
        """Send it something."""
        self.pipe.send(what)

    def said(self, seconds: float = 60.0) -> Any:
        """What it sent next."""
        assert self.pipe.poll(seconds), f"{self.process.name} says nothing for {seconds} s"
        return self.pipe.recv()

    def kill(self) -> None:
        """SIGKILL; returns when it has ended."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.join(20)
        assert self.process.exitcode == -signal.SIGKILL


@contextmanager
def elsewhere(function: Callable[..., object], *arguments: object) -> Iterator[Elsewhere]:
    """function(pipe, *arguments) in a process that ends with the block at the latest."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=function, args=(there, *arguments), name=function.__name__, daemon=True)
    process.start()
    there.close()
    try:
        yield Elsewhere(process, here)
    finally:
        if process.is_alive():
            process.kill()
        process.join(20)
        process.close()
        here.close()
