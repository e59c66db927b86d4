"""The last lines of a suite: parts with their seconds, the slowest tests, what was flaky, green or red"""

from pathlib import Path

from tests.suites.outcomes import Outcomes

MOST_FLAKY = 3
SLOWEST = 20
COLUMNS = ("commit", "suite", "passed", "failed", "flaky", "skipped", "minutes", "largest process", "")
HEADER = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}\n"


def report(
    suite: str, commit: str, unfinished: list[int], first: Outcomes, again: Outcomes, folder: Path
) -> int:
    """Print what became of a suite and enter its line in the summary; 0 for green, 1 for red.

    unfinished: exit codes of processes that ended before all their tests had run; first, again: the suite,
    and what failed in it, alone; folder: of the summary.
    """
    flaky = [name for name in first.failed() if name in again.done()]
    failed = [name for name in first.failed() if name not in flaky]
    green = not unfinished and not failed and len(flaky) <= MOST_FLAKY and bool(first.tests)
    passed = len(first.named("passed")) + len(first.named("xfailed")) + len(flaky)
    skipped = len(first.named("skipped"))
    peak = max(first.peak_bytes, again.peak_bytes) / 1e9
    lines = [f"the {SLOWEST} slowest tests:"]
    lines += [f"  {took:6.1f} s  {name}" for took, name in first.slowest(SLOWEST)]
    for name in failed:
        how = "failed twice" if name in again.tests else "failed, and did not run again"
        lines.append(f"{how}: {name} - {again.tests.get(name, first.tests[name])['error']}")
    lines += [f"flaky, passed alone: {name} - {first.tests[name]['error']}" for name in flaky]
    if len(flaky) > MOST_FLAKY:
        lines.append(f"{len(flaky)} flaky tests are too many: {MOST_FLAKY} at most")
    lines += [f"a process of pytest ended with {code}, before all its tests had run" for code in unfinished]
    lines.append(_parts(folder / "parts.txt", first.seconds))
    word = "green" if green else "red"
    lines.append(f"{suite} at {commit}: {word}, {len(flaky)} flaky, largest process {peak:.1f} GB")
    lines.append(f"{passed} passed, {len(failed)} failed, {skipped} skipped")
    print("\n" + "\n".join(lines), flush=True)  # noqa: T201
    counts = (passed, len(failed), len(flaky), skipped)
    row = (commit, suite, *counts, f"{sum(first.seconds.values()) / 60:.1f}", f"{peak:.1f} GB", word)
    _enter(folder / "SUMMARY.md", f"| {commit} | {suite} |", f"| {' | '.join(map(str, row))} |")
    return 0 if green else 1


def _parts(file: Path, seconds: dict[str, float]) -> str:
    """`tools 4 s, linters 61 s, core 230 s, kits 90 s`: what make noted, and the suite's own parts."""
    noted = [line.rpartition(" ") for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    file.unlink(missing_ok=True)
    parts = [*((name, float(took)) for name, _, took in noted), *seconds.items()]
    parts = [(name, took) for name, took in parts if took]
    total = sum(took for _, took in parts)
    return ", ".join(f"{name} {took:.0f} s" for name, took in parts) + f"; together {total / 60:.1f} min"


def _enter(file: Path, key: str, line: str) -> None:
    """Put a line into the table of suites, in the place of an earlier one of the same commit and suite."""
    found = file.read_text(encoding="utf-8").removeprefix(HEADER).splitlines() if file.exists() else []
    kept = [earlier for earlier in found if not earlier.startswith(key)]
    file.write_text(HEADER + "\n".join([*kept, line]) + "\n", encoding="utf-8")
