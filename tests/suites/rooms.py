"""Tests by rooms, each in a process of its own, two at a time

A process imports what its room needs and gives it back at the end, so that none grows by all frameworks at
once. What starts Ray has one head a room; rooms of one kind stay apart as long as there are others.
"""

import re
import signal
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

AT_A_TIME = 2
NO_TESTS = 5  # pytest's exit code
KITS = ("tests/kits", "tests/dashboards", "tests/gpu")  # whose rooms run behind those of the core

# What is larger or smaller than a folder of tests. Ray's have a cluster each, and the transports measure each
# other's silence: neither is quick beside its like. Folders share a process, which imports frameworks once,
# as far as it stays below 2 GB; what needs all frameworks at once, or whole networks, has its own.
KINDS = {
    "ray": (
        ("tests/actors",),
        ("tests/kits/parallel/on_ray",),
        ("tests/commands", "tests/test_readme.py"),
        ("tests/docs", "tests/recipes"),
        ("tests/kits/laboratory",),
    ),
    "transports": (("tests/distributed/communicators",), ("tests/distributed",)),
    "": (  # what needs all frameworks at once, or whole networks, would grow beyond 2 GB together
        ("tests/archive",),
        ("tests/training/optimizers", "tests/training/datasets"),
        ("tests/test_same_as_keras.py", "tests/test_same_as_torch.py", "tests/test_loss_weights.py",
         "tests/test_program_state.py", "tests/docs/test_glossary.py"),
        ("tests/frameworks/test_onnx_models.py",),
        tuple(
            f"tests/frameworks/test_{what}.py"
            for what in ("jax_executor", "keras_executor", "native_optimizers")
        ),
        ("tests/frameworks",),
        ("tests/agent", "tests/simulated", "tests/training"),
        ("tests/identity", "tests/metrics", "tests/mutants", "tests/suites", "tests/wrong_inputs"),
        ("tests/networks", "tests/operators"),
        ("tests/ops", "d5ray"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Room:
    """Folders and files whose tests share a process, without those that have a room of their own."""

    places: tuple[str, ...]
    without: tuple[str, ...] = ()
    kind: str = ""

    @property
    def name(self) -> str:
        return self.places[0] + (f" and {len(self.places) - 1} more" if len(self.places) > 1 else "")

    @property
    def part(self) -> str:
        return "kits" if self.places[0].startswith(KITS) else "core"

    def arguments(self) -> list[str]:
        """The places as pytest takes them."""
        return [*self.places, *(f"--ignore={place}" for place in self.without)]


def rooms(folder: Path) -> tuple[Room, ...]:
    """The rooms of a checkout, those that start Ray first; every test is in one of them."""
    named: list[tuple[tuple[str, ...], str]] = [
        (places, kind) for kind, groups in KINDS.items() for places in groups
    ]
    taken = {place for places, _ in named for place in places}
    found = sorted((folder / "tests").iterdir())
    folders = [f"tests/{path.name}" for path in found if path.is_dir() and path.name[0] not in "._"]
    files = [f"tests/{path.name}" for path in found if path.suffix == ".py"]
    named += [((place,), "") for place in (*folders, "d5ray") if place not in taken]
    named.append((tuple(file for file in files if file not in taken), ""))
    return tuple(
        Room(places, tuple(sorted(t for t in taken if t.startswith(tuple(f"{p}/" for p in places)))), kind)
        for places, kind in named
    )


@dataclass(frozen=True)
class Pool:
    """Runs rooms and prints a line of each; what its pytest printed is kept in a file of the folder.

    command: pytest, without places; environment: its own; where: the checkout.
    """

    command: list[str]
    environment: dict[str, str]
    where: Path
    folder: Path

    def run(self, waiting: Sequence[Room]) -> dict[Room, int]:
        """pytest's exit code in each room; below zero where a signal ended it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        waiting, codes = list(waiting), dict[Room, int]()
        running = dict[Room, tuple[subprocess.Popen[bytes], float]]()
        try:
            while waiting or running:
                while waiting and len(running) < AT_A_TIME:
                    room = waiting.pop(_next(waiting, running))
                    running[room] = self._start(room), time.monotonic()
                for room, (process, begin) in list(running.items()):
                    if process.poll() is not None:
                        del running[room]
                        codes[room] = self._tell(room, process.returncode, time.monotonic() - begin)
                time.sleep(0.05)
        finally:
            _end([process for process, _ in running.values()])
        return codes

    def _output(self, room: Room) -> Path:
        return self.folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', room.name)}.txt"

    def _start(self, room: Room) -> subprocess.Popen[bytes]:
        with self._output(room).open("wb") as output:
            command = [*self.command, *room.arguments()]
            return subprocess.Popen(
                command, cwd=self.where, env=self.environment, stdout=output, stderr=output
            )

    def _tell(self, room: Room, code: int, seconds: float) -> int:
        """One line where all is well; where not, also what pytest says of each failure. Gives the code.

        A process that a signal ends behind pytest's last line, as threads of Ray's do to some, has run all.
        """
        text = self._output(room).read_text("utf-8", errors="replace")
        text = text.partition("\nnanobind: leaked")[0].rstrip()  # so are called objects behind the last look
        counts = re.findall(r"^=* ?((?:\d+ \w+,? ?)+)in [\d.]+s.*$", text, re.MULTILINE)
        if code not in (0, NO_TESTS):
            print(text[max(0, text.find("\n====")) :])  # noqa: T201
        said = counts[-1].rstrip() if counts else f"ended with {code}"
        if code < 0 and counts:
            said, code = f"{said}, and a crash behind the last test ({code})", 1
        print(f"{room.name:30} {said}, {seconds:.0f} s", flush=True)  # noqa: T201
        return code


def _next(waiting: Sequence[Room], running: Collection[Room]) -> int:
    """The index of the first room of whose kind none runs; else of the first."""
    kinds = {room.kind for room in running} - {""}
    return next((index for index, room in enumerate(waiting) if room.kind not in kinds), 0)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for those that Ctrl-C has reached too; interrupt those that it has not, so that they clean up."""
    for number in (0, signal.SIGINT, signal.SIGKILL):
        for process in processes:
            process.send_signal(number)
        until = time.monotonic() + 30
        while any(process.poll() is None for process in processes) and time.monotonic() < until:
            time.sleep(0.05)
