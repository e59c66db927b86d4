"""Marks: what each process notes of its committed steps in a file, and what a kill among them did"""

import hashlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from benchmarks.recovery_speed.metrics import EQUAL, NEWCOMER_TIME, RECOVERY_TIME, UNDONE_STEPS
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons.contenders import RankSeries

NS: Final = 1e-9
STOP: Final = "stop"  # the file with the number of steps after which all end
LOOK_SECONDS: Final = 0.02
VICTIM: Final = 1  # the rank of the process that is killed
STEPS_AFTER: Final = 20  # of everyone who goes on, before the end is set
SECONDS_TO_THE_END: Final = 2.0  # in which all know of it


@final
class Marks:
    """The notes of one process, which survive it: a line for every committed step, with the time in ns."""

    def __init__(self, folder: str, rank: int) -> None:
        self._stop = Path(folder) / STOP
        self._last = 0
        path = f"{folder}/{rank}-{os.getpid()}.marks"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def committed(self, step: int) -> bool:
        """Note that so many steps are complete; True if this is the last one."""
        os.write(self._file, f"{time.monotonic_ns()} {step}\n".encode())
        if not self._last and self._stop.exists():
            self._last = int(self._stop.read_text())
        return 0 < self._last <= step

    def end(self, parameters: np.ndarray[Any, Any]) -> None:
        """Note the hash of the parameters (n,) that the process ends with."""
        os.write(self._file, f"end {hashlib.sha256(parameters.tobytes()).hexdigest()}\n".encode())


@dataclass
class Noted:
    """What one process noted: the times in ns and the numbers of its steps, and its hash at the end."""

    rank: int
    pid: int
    times: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    sha256: str = ""

    @property
    def step_seconds(self) -> float:
        """The time of a step, of the last ones."""
        return float(np.median(np.diff(self.times[-STEPS_AFTER:]))) * NS

    def after(self, moment: int) -> int:
        """The number of steps committed after this time."""
        return sum(at > moment for at in self.times)


def noted(folder: Path) -> list[Noted]:
    """What all processes have noted so far."""
    found = []
    for path in sorted(folder.glob("*.marks")):
        rank, pid = path.stem.split("-")
        own = Noted(int(rank), int(pid))
        for line in path.read_text().split("\n")[:-1]:
            first, second = line.split()
            if first == "end":
                own.sha256 = second
            else:
                own.times.append(int(first))
                own.steps.append(int(second))
        found.append(own)
    return found


@final
@dataclass(frozen=True)
class Kill:
    """A kill of one process in the midst of a training, and how long everything may take.

    processes  that train
    steps      of each of them before the kill
    again      processes that train afterwards, which may be new ones
    seconds    for all of it
    """

    processes: int
    steps: int
    again: int
    seconds: float

    def strike(self, folder: Path, killed: Callable[[], None] = lambda: None) -> tuple[int, int]:
        """Kill one when all train, let the others go on, then end all: the time of the kill, and its process.

        killed: called right after the kill. Raises `AgentError` where they do not train in time.
        """
        last = 1  # where something goes wrong, everyone ends at once
        deadline = time.monotonic() + self.seconds

        def until(otherwise: str, enough: Callable[[list[Noted]], bool]) -> list[Noted]:
            """The notes when they are enough; `AgentError` at the deadline, which says what is not."""
            while not enough(found := noted(folder)):
                if time.monotonic() > deadline:
                    did = ", ".join(f"rank {each.rank}: {len(each.steps)}" for each in found)
                    raise AgentError(f"{otherwise} in time; steps noted: {did or 'none'}")
                time.sleep(LOOK_SECONDS)
            return found

        try:
            found = until(
                f"not all of {self.processes} processes did {self.steps} steps",
                lambda all_: sum(len(each.steps) >= self.steps for each in all_) >= self.processes,
            )
            victim = next(each for each in found if each.rank == VICTIM)
            os.kill(victim.pid, signal.SIGKILL)
            moment = time.monotonic_ns()
            killed()
            found = until(
                f"{self.again} processes did not go on after the kill",
                lambda all_: sum(each.after(moment) >= STEPS_AFTER for each in all_) >= self.again,
            )
            furthest = max((each for each in found if each.after(moment)), key=lambda each: each.steps[-1])
            last = furthest.steps[-1] + 1 + int(SECONDS_TO_THE_END / furthest.step_seconds)
        finally:
            part = folder / f"{STOP}.part"
            part.write_text(str(last))
            part.replace(folder / STOP)
        until(
            f"{self.again} processes did not end",
            lambda all_: sum(bool(each.sha256) for each in all_ if each.after(moment)) >= self.again,
        )
        return moment, victim.pid


def outcome(all_: list[Noted], moment: int, victim: int) -> list[RankSeries]:
    """What the kill at this time did to those that went on, as rows."""
    before = [each for each in all_ if each.pid != victim and each.times and each.times[0] < moment]
    survivors = [each for each in before if each.after(moment)]
    newcomers = [each for each in all_ if each.times and each.times[0] > moment]
    furthest = max(
        step for each in all_ for at, step in zip(each.times, each.steps, strict=True) if at < moment
    )
    pauses = [_pause(each, moment) for each in survivors]
    if pauses:
        recovery = max(end for end, _ in pauses) - moment
        undone = max(0, *(steps for _, steps in pauses))
    else:
        recovery = min(each.times[0] for each in newcomers) - moment
        undone = max(0, furthest + 1 - min(each.steps[0] for each in newcomers))
    at_the_end = [each.sha256 for each in all_ if each.after(moment)]
    values: list[tuple[str, str, float]] = [
        (RECOVERY_TIME, "s", recovery * NS),
        (UNDONE_STEPS, "1", float(undone)),
        (EQUAL, "1", float(len(set(at_the_end)) == 1 and all(at_the_end))),
    ]
    if newcomers:
        first = min(each.times[0] for each in newcomers)
        values.append((NEWCOMER_TIME, "s", (first - moment) * NS))
    return [RankSeries(metric, unit, 0, [value], phase="run") for metric, unit, value in values]


def _pause(survivor: Noted, moment: int) -> tuple[int, int]:
    """The end of the longest pause between two steps that ends after this time, and the steps done again."""
    times, steps = survivor.times, survivor.steps
    ends = [at for at in range(1, len(times)) if times[at] > moment]
    end = max(ends, key=lambda at: times[at] - times[at - 1])
    return times[end], steps[end - 1] + 1 - steps[end]
