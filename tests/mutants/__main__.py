"""`make mutants`: how many of 300 small changes of the core its tests notice, by room

    python -m tests.mutants [--seconds S] [--new | --again] [--of PATH] [--first TEST ...]

The mutants are drawn by a seed from a commit: that of the newest `COMMIT.jsonl` here until all are tried,
with `--new` the one that is checked out. `--again` looks in the one that is checked out for the same ones, in
a record beside: first for what was noticed, then for what was not tried, then for what has survived, which is
taken to survive until then. Each runs in a copy of the commit, with those tests first that are likeliest to
notice, for 25 s; others may notice what survives: try `--of d5ray/agent/ --first tests/test_late.py`.
What came of each is a line of the file, of which the last counts, so that a run may end at any time;
`table.md` sums up. Who finds that a survivor does the same as the program writes "equivalent" into its line.
"""

import argparse
import compileall
import difflib
import importlib
import json
import math
import os
import re
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import networkx

from tests.house import REPOSITORY, TABLE, House, imported_of
from tests.mutants.drawing import Key, Mutant, drawn
from tests.mutants.running import Outcome, run

FOLDER = Path(__file__).parent
NUMBER, SEED = 300, "d5ray"
STARTS_RAY = (
    "tests/actors/", "tests/commands/", "tests/docs/", "tests/kits/laboratory/",
    "tests/kits/parallel/on_ray/", "tests/recipes/", "tests/test_readme",
)  # fmt: skip
END_TO_END = ("tests/agent/test_training_agent.py", "tests/test_simulator.py", "tests/test_same_as_torch.py")
LIBRARIES = ("numpy", "torch", "pandas", "pyarrow", "onnx", "duckdb")  # imported once for all
OUTCOMES = ("killed", "timed out", "survived", "equivalent")
NOTICED, BEFORE = OUTCOMES[:2], "an earlier commit's tests"  # by which a mutant is taken to survive


class Trials:
    """The mutants of a commit, of which there is a copy, and what came of those that were tried."""

    def __init__(self, record: Path, before: Path | None = None) -> None:
        self.record, self.tree = record, REPOSITORY / "build" / "mutants" / record.stem
        is_new = not self.tree.exists()
        self.tree.mkdir(parents=True, exist_ok=True)
        files = subprocess.run(
            ["git", "archive", record.stem], cwd=REPOSITORY, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", self.tree], input=files.stdout, check=True)
        if is_new:  # by contents, since mutants come and go within a second
            compileall.compile_dir(self.tree, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        self.house = house = House((self.tree / TABLE).read_text("utf-8"), self.tree)
        sizes = {room: lines for room, (lines, *_) in house.sizes.items() if room.kind == "core"}
        share = {room.name: round(NUMBER * lines / sum(sizes.values())) for room, lines in sizes.items()}
        texts = defaultdict[str, dict[str, str]](dict)
        for file in house.modules.values():
            texts[house.room[file].name][file] = house.texts[file]
        self.mutants = sorted(  # every room is as far as the others
            ((index + 0.5) / number, room, mutant)
            for room, number in share.items()
            for index, mutant in enumerate(drawn(texts[room], number, f"{SEED} {room}"))
        )
        self.used_by = networkx.DiGraph(
            (house.modules[used], file) for file in house.texts for used in self._uses(file)
        )
        record.touch()
        self.lines = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
        if not self.lines:
            self._note(seed=SEED, drawn=share, **({"again": before.stem} if before else {}))
        if earlier := self.lines[0].get("again"):
            self.mutants = sorted(self._found_again(Trials(FOLDER / f"{earlier}.jsonl")))

    def _found_again(self, earlier: "Trials") -> Iterator[tuple[float, str, Mutant]]:
        """The mutants of another commit, where this one's files have the same lines; noticed ones first."""
        came, noted, renamed = last(earlier.lines), last(self.lines), "--diff-filter=R"
        files = git("diff", "-M", "--name-status", renamed, earlier.record.stem, self.record.stem)
        moved = dict(row.split("\t")[1:] for row in files.splitlines())
        for place, room, mutant in earlier.mutants:
            file = moved.get(mutant.file, mutant.file)
            old, new = earlier.house.texts[mutant.file], self.house.texts.get(file, "")
            was = old.encode()[mutant.begin : mutant.end]
            if (at := same_place(old, new, mutant.begin, was.decode())) is None:
                continue
            here = mutant._replace(file=file, begin=at, end=at + len(was))
            line = came.get((mutant.file, mutant.begin, mutant.now), {"outcome": ""})
            yield 0.0 if line["outcome"] in NOTICED else place, room, here
            if line["outcome"] in OUTCOMES and line["outcome"] not in NOTICED and here.key not in noted:
                self._note(**line | {"file": file, "at": at, "by": BEFORE, "tests": 0, "seconds": 0})

    def _uses(self, file: str) -> set[str]:
        """The modules that a file imports, or, as a test, whose public names it says."""
        names = imported_of(self.house.texts[file])
        found = {f"{module}.{name}" for module, name in names} | {module for module, _ in names}
        if file.startswith("tests/"):
            said = set(re.findall(r"\bd5\.(?:\w+\.)?(\w+)", self.house.texts[file]))
            found |= {module for module, name in self.house.public if name in said}
        return found & self.house.modules.keys()

    def left(self, *, survivors: bool = False) -> Iterator[tuple[str, Mutant]]:
        """The mutants of which nothing came here yet, each after its room; at last who survived before.

        survivors: those, too, that survived here.
        """
        nothing, seen = {"outcome": "", "by": ""}, last(self.lines)
        own = [("survived", "")] if survivors else []
        for came in (("", ""), ("cut off", ""), ("survived", BEFORE), *own):
            for _, room, mutant in self.mutants:
                line = seen.get(mutant.key, nothing)
                if (line["outcome"], line["by"]) == came:
                    yield room, mutant

    def attempt(self, room: str, mutant: Mutant, until: float, first: Sequence[str] = ()) -> Outcome:
        """Try a mutant, with these tests before others, and note what came of it."""
        before, tests = self.house.texts[mutant.file], [*first, *self._tests(mutant.file)]
        path, begin = self.tree / mutant.file, time.monotonic()
        while True:
            path.write_text(mutant.of(before), "utf-8")
            outcome = self._run(tests, until)
            path.write_text(before, "utf-8")
            if time.monotonic() > until:
                outcome = Outcome("cut off")
            if not outcome.by or not self._fails_anyway(outcome.by):
                break
        self._note(
            room=room, file=mutant.file, line=mutant.line, kind=mutant.kind, at=mutant.begin,
            was=before.encode()[mutant.begin : mutant.end].decode(), now=mutant.now,
            **outcome._asdict(), seconds=round(time.monotonic() - begin),
        )  # fmt: skip
        return outcome

    def _note(self, **line: Any) -> None:
        self.lines.append(line)
        with self.record.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def _run(self, tests: Sequence[str], until: float) -> Outcome:
        return run(self.tree, tests, {line["test"] for line in self.lines if line.get("fails")}, until)

    def _fails_anyway(self, test: str) -> bool:
        """Whether a test fails without a mutant, here and now, too; it is left out from then on."""
        known: dict[str, bool] = {line["test"]: line["fails"] for line in self.lines if "test" in line}
        if known.get(test):
            raise SystemExit(f"{test} fails without a mutant, and cannot be left out")
        if test not in known:
            known[test] = self._run([test], math.inf).outcome != "survived"
            self._note(test=test, fails=known[test])
        return known[test]

    def _tests(self, file: str) -> list[str]:
        """Files of tests: its own examples, what uses it itself, those of its room, the nearest first."""
        house, keys = self.house, dict[str, tuple[Any, ...]]()
        self.used_by.add_node(file)
        steps = networkx.single_source_shortest_path_length(self.used_by, file)
        for test in house.tests:
            far, is_other = steps.get(test, math.inf), house.room[test] != house.room[file]
            if "/test_" in test and not (is_other and (far > 1 or test.startswith(STARTS_RAY))):
                keys[test] = far > 1, is_other, far, len(house.texts[test])
        own = [file] if ">>> " in house.texts[file] else []
        return [*own, *sorted(keys, key=keys.__getitem__), *(test for test in END_TO_END if test not in keys)]


def last(lines: Sequence[dict[str, Any]]) -> dict[Key, dict[str, Any]]:
    """The last line of a record about each mutant."""
    return {(line["file"], line["at"], line["now"]): line for line in lines if "room" in line}


def git(*words: str) -> str:
    """What git says in this repository."""
    return subprocess.check_output(["git", *words], cwd=REPOSITORY, text=True).strip()


def same_place(old: str, new: str, at: int, was: str) -> int | None:
    """Where bytes of a text stand in a later one whose lines there are the same; None: they are gone.

    >>> same_place("a = 1\\nb = 2\\n", "c = 0\\na = 1\\nb = 2\\n", 10, "2")
    16
    """
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    number = old.encode()[:at].count(b"\n")
    column = at - len("".join(before[:number]).encode())
    for block in difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        if block.a <= number < block.a + block.size:
            found = len("".join(after[: block.b + number - block.a]).encode()) + column
            if new.encode()[found:].startswith(was.encode()):
                return found
    return None


def table(records: Sequence[Path]) -> Iterator[str]:
    """What came of the mutants of each commit, by room, as a page."""
    yield "# Mutants: small changes of the core, and how many its tests notice\n"
    yield "Written by `make mutants`. The share is of those that were tried, without the equivalent ones."
    for record in records:
        first, *lines = [json.loads(line) for line in record.read_text("utf-8").splitlines()]
        found = Counter(
            (room, line["outcome"]) for line in last(lines).values() for room in (line["room"], "all")
        )
        yield f"\n## {record.stem}, seed {first['seed']}\n"
        yield f"| room | drawn | tried | {' | '.join(OUTCOMES)} | share noticed |"
        yield "|---" * (len(OUTCOMES) + 4) + "|"
        for room, number in [*first["drawn"].items(), ("all", sum(first["drawn"].values()))]:
            counts = [found[room, outcome] for outcome in OUTCOMES]
            share = f"{sum(counts[:2]) / sum(counts[:3]):.0%}" if sum(counts[:3]) else ""
            yield f"| {room} | {number} | {sum(counts)} | {' | '.join(map(str, counts))} | {share} |"


def main() -> None:
    """Try mutants until all are, or the time is over; then write the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seconds", type=float, default=math.inf, help="how long at most")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--new", action="store_true", help="of the commit that is checked out")
    which.add_argument("--again", action="store_true", help="the same ones, where that commit still has them")
    parser.add_argument("--of", default="", help="how the paths of files begin whose mutants are tried")
    parser.add_argument("--first", nargs="+", default=(), metavar="TEST", help="tests that run before others")
    options, until = parser.parse_args(), time.monotonic()
    until += options.seconds
    records = sorted(
        FOLDER.glob("*.jsonl"), key=lambda path: int(git("show", "-s", "--format=%ct", path.stem))
    )
    own = FOLDER / f"{git('rev-parse', '--short=9', 'HEAD')}.jsonl"
    drawn = [record for record in records if '"again"' not in record.read_text("utf-8").partition("\n")[0]]
    before = drawn[-1] if options.again else None
    chosen = own if options.new or options.again or not drawn else drawn[-1]
    records += [chosen] if chosen not in records else []
    os.environ |= {f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS")}
    trials = Trials(chosen, before)
    for library in LIBRARIES:
        importlib.import_module(library)
    for room, mutant in trials.left(survivors=bool(options.first)):
        if not mutant.file.startswith(options.of):
            continue
        outcome = trials.attempt(room, mutant, until, options.first)
        print(room, mutant.file, mutant.line, *outcome, flush=True)  # noqa: T201
        if time.monotonic() > until:
            break
    (FOLDER / "table.md").write_text("\n".join(table(records)) + "\n", "utf-8")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    main()
