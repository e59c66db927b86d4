"""`python -m tests.suites SUITE… [--resume]`: run suites of tests, give what failed a second chance, sum up

A test that fails runs once more at the end, alone, in one process. What passes only then is flaky: it is
named with its first error, and a suite with more than three of them is red. What fails twice is red.
`--resume` goes on with what has not passed yet on this commit, until all has.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests import cases, processor
from tests.suites.outcomes import Outcomes, note
from tests.suites.report import report

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "build" / "tests"
NO_TESTS = 5  # pytest's exit code
MOST_AGAIN = 20  # more than these do not fail by chance, and one by one they may take hours

# What depends on which kernels libraries choose: operators, networks, update rules, real against simulated.
NUMERIC = (
    "tests/ops",
    "tests/frameworks",
    "tests/test_simulator.py",
    "tests/training/optimizers/test_every_rule.py",
    "tests/training/optimizers/test_deep500_rules.py",
    "tests/training/optimizers/test_optimizer_rules.py",
    "tests/distributed/optimizers/test_optimizers_simulated.py",
    *(f"tests/distributed/optimizers/test_invariants_{what}.py"
      for what in ("after_deaths", "allreduce", "averaging", "decentralized")),
)  # fmt: skip


@dataclass(frozen=True)
class Suite:
    """How pytest selects tests, where from, and whose kernels they run with ("" for this processor's own)."""

    selection: tuple[str, ...]
    places: tuple[str, ...] = ()
    kernels: str = ""
    folder: Path = REPOSITORY

    def run(self, *arguments: str) -> int:
        """pytest's exit code."""
        environment = os.environ | {cases.WEEK: cases.week()}  # one draw, also over midnight
        environment |= processor.environment(self.kernels) if self.kernels else {}
        command = [sys.executable, "-m", "pytest", "-p", "tests.suites.record", *self.selection, *arguments]
        return subprocess.run(command, cwd=self.folder, env=environment, check=False).returncode


SHORT = ("-m", "not slow and not full")
SUITES = {
    "test": Suite(SHORT),
    "test-full": Suite(("-m", "full and not slow")),
    "test-older-avx2": Suite((*SHORT, "--every-case"), NUMERIC, kernels="avx2"),
    "test-older-sse4": Suite((*SHORT, "--every-case"), NUMERIC, kernels="sse4"),
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
    begin = time.monotonic()
    try:
        code = suite.run(
            "-n", "2", "--no-loadscope-reorder", f"--record={record}", f"--leave-out={leave_out}"
        )
        if code == NO_TESTS and before.tests:  # all have passed before
            code = 0
        failed = Outcomes.read(record).failed()
        if code == 1 and 0 < len(failed) <= MOST_AGAIN:
            print(f"\nonce more, alone, in one process: {len(failed)} that failed", flush=True)  # noqa: T201
            suite.run(f"--record={again}", *failed)
    finally:
        note(record, suite_seconds=round(time.monotonic() - begin, 1))
    return report(name, at, code, Outcomes.read(record), Outcomes.read(again), folder)


def _commit() -> str:
    """The commit that is tested, shortened; with a plus where the work tree differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False
        ).stdout

    changed = "+" if git("status", "--porcelain") else ""
    return git("rev-parse", "--short=9", "HEAD").strip() + changed


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
