"""`python -m tests.suites SUITE… [--resume]`: run suites of tests, give what failed a second chance, sum up

A test that fails runs once more at the end, alone, in one process. What passes only then is flaky: it is
named with its first error, and a suite with more than three of them is red. What fails twice is red.
`--resume` goes on with what has not passed yet on this commit, until all has.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests import cases, processor
from tests.suites.outcomes import Outcomes, file_of, note
from tests.suites.report import report
from tests.suites.rooms import NO_TESTS, Pool, Room, rooms

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "build" / "tests"
THREADS = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}  # of two processes
MEMORY, LEAST_BYTES = Path("/dev/shm"), 4 << 30  # where tests have their folders if so much is free there
MOST_AGAIN = 20  # more than these do not fail by chance, and one by one they may take hours

ROOMS = rooms(REPOSITORY)
# What depends on which kernels libraries choose: operators, networks, update rules, real against simulated.
NUMERIC = (
    Room(("tests/ops",)),
    *(room for room in ROOMS if room.name.startswith("tests/frameworks")),
    Room((
        "tests/test_simulator.py",
        "tests/training/optimizers/test_every_rule.py",
        "tests/training/optimizers/test_deep500_rules.py",
        "tests/training/optimizers/test_optimizer_rules.py",
        "tests/distributed/optimizers/test_optimizers_simulated.py",
        "tests/distributed/optimizers/test_invariants_after_deaths.py",
    )),
)  # fmt: skip


@dataclass(frozen=True)
class Suite:
    """How pytest selects tests, where from, and whose kernels they run with ("" for this processor's own)."""

    selection: tuple[str, ...]
    rooms: tuple[Room, ...] = ROOMS
    kernels: str = ""
    folder: Path = REPOSITORY

    def pytest(self, *arguments: str) -> list[str]:
        """The command, without places."""
        return [sys.executable, "-m", "pytest", "-p", "tests.suites.record", *self.selection, *arguments]

    def environment(self) -> dict[str, str]:
        """A core for each process, one draw of cases, also over midnight; modules are compiled once."""
        kernels = processor.environment(self.kernels) if self.kernels else {}
        return THREADS | os.environ | {cases.WEEK: cases.week(), "PYTHONDONTWRITEBYTECODE": ""} | kernels

    def part(self, name: str) -> "Suite":
        """Of the rooms, those of the core, or of the kits."""
        return replace(self, rooms=tuple(room for room in self.rooms if room.part == name))


SHORT = ("-m", "not slow and not full")
# Older Rays leave files and processes to the garbage collector, which is no mistake of what runs on them.
LEFT_OPEN = ("-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning")
SUITES = {
    "test": Suite(SHORT),
    "test-core": Suite(SHORT).part("core"),
    "test-kits": Suite(SHORT).part("kits"),
    "test-full": Suite(("-m", "full and not slow")),
    "test-older-avx2": Suite((*SHORT, "--every-case"), NUMERIC, kernels="avx2"),
    "test-older-sse4": Suite((*SHORT, "--every-case"), NUMERIC, kernels="sse4"),
    "test-ray": Suite(
        (*SHORT, *LEFT_OPEN), (Room(("tests/actors",)), Room(("tests/kits/laboratory/test_tune.py",)))
    ),
    "test-slow": Suite(("-m", "slow")),
}


def main() -> int:
    """0 where all suites are green, 1 where one is red."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("suites", nargs="+", choices=SUITES)
    parser.add_argument("--resume", action="store_true", help="go on with what has not passed on this commit")
    options = parser.parse_args()
    at = _commit()
    resume = options.resume and not at.endswith("+")
    return max(run(name, SUITES[name], at, resume, FOLDER) for name in options.suites)


def run(name: str, suite: Suite, at: str, resume: bool, folder: Path) -> int:
    """Run a suite, or what has not passed of it; then what failed, one by one. 0 for green, 1 for red."""
    folder.mkdir(parents=True, exist_ok=True)
    record, again = folder / f"{name}.{at}.jsonl", folder / f"{name}.again.jsonl"
    if not resume:
        record.unlink(missing_ok=True)
    again.unlink(missing_ok=True)
    before = Outcomes.read(record)
    leave_out = folder / f"{name}.leave-out.txt"
    leave_out.write_text("\n".join(before.done()), encoding="utf-8")
    environment, codes = suite.environment(), [NO_TESTS]
    command = suite.pytest(f"--record={record}", f"--leave-out={leave_out}")
    for part in ("core", "kits"):
        with _timed(record, part), _in_memory(suite) as places:
            pool = Pool(command, environment | places, suite.folder, folder / name)
            codes += pool.run(suite.part(part).rooms).values()
    with _timed(record, "again"):
        failed = Outcomes.read(record).failed()
        if 0 < len(failed) <= MOST_AGAIN:
            print(f"\nonce more, alone, in one process: {len(failed)} that failed", flush=True)  # noqa: T201
            # In a list, since pytest runs nothing where one test of its command line is gone.
            only = folder / f"{name}.only.txt"
            only.write_text("\n".join(failed), encoding="utf-8")
            files = [file for file in sorted({*map(file_of, failed)}) if (suite.folder / file).exists()]
            if files:
                command = suite.pytest(f"--record={again}", f"--only={only}", *files)
                subprocess.run(command, cwd=suite.folder, env=environment, check=False)
    unfinished = [code for code in codes if code not in (0, 1, NO_TESTS)]
    return report(name, at, unfinished, Outcomes.read(record), Outcomes.read(again), folder)


@contextmanager
def _in_memory(suite: Suite) -> Iterator[dict[str, str]]:
    """The variable by which short tests have their folders in memory, since a run syncs a dozen files.

    Not the long ones, some of which hide or fill this memory. What has failed runs again on the disk.
    """
    if suite.selection[:2] != SHORT or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < LEAST_BYTES:
        yield {}
        return
    folder = MEMORY / f"tests-{os.getuid()}-{zlib.crc32(os.fsencode(suite.folder)):08x}"
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed
    folder.mkdir(mode=0o700)
    try:
        yield {"PYTEST_DEBUG_TEMPROOT": str(folder)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _timed(record: Path, part: str) -> Iterator[None]:
    """Note the seconds of the block as those of a part of the suite, also where it is interrupted."""
    begin = time.monotonic()
    try:
        yield
    finally:
        note(record, part=part, seconds=round(time.monotonic() - begin, 1))


def _commit() -> str:
    """The commit that is tested, shortened; with a plus where the work tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
        ).stdout

    changed = "+" if git("status", "--porcelain") else ""
    return git("rev-parse", "--short=9", "HEAD").strip() + changed


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell has the first ignored by what it starts with &
        signal.signal(number, signal.default_int_handler)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
