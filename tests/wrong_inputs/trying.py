"""Every wrong input of the public API, and what became of it in a process of its own"""

import json
import selectors
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.wrong_inputs.calls import valid_calls
from tests.wrong_inputs.values import MISSING, UNEXPECTED, wrong_values

Case = tuple[str, str, str]  # what is called, the parameter that is wrong, and how
ACCEPTED, REFUSED = "accepted", "refused"
BY_THE_EXPERIMENT, AT_THE_START, IN_TRAINING = "by the experiment", "at the start", "in training"
RIGHT = {  # what the user's own code does is his
    (parameter, wrong)
    for parameter in ("function", "factory", "peak", "arguments", "infer", "flops")
    for wrong in ("a function", "a class")
}
STARTS = {  # what is right, and would start a Ray
    ("launch", "root", wrong) for wrong in ("a folder's path", "a folder's path as a text", "no file", "text")
}
LATER = {  # whose bound is the size of the model, which an experiment alone knows
    ("RandomK", "k"), ("TopK", "k"), ("UnbiasedRandomK", "k"), ("PowerSGD", "rank"),
    ("TranslationQuality", "every"), ("TranslationQuality", "sentences"),  # of sentences alone
}  # fmt: skip
SILENCE = 120.0  # seconds after which a process is taken to hang, on a machine that does other things too


@dataclass(frozen=True)
class Became:
    case: Case
    what: str  # accepted, refused, or what is wrong
    said: str
    seconds: float

    @property
    def right(self) -> bool:
        later = self.case[:2] in LATER and self.what in (BY_THE_EXPERIMENT, AT_THE_START)
        return self.what in (ACCEPTED, REFUSED) or later

    def __str__(self) -> str:
        name, parameter, wrong = self.case
        return f"{name}({parameter}: {wrong}) {self.what} after {self.seconds:.1f} s: {self.said[:300]}"


def all_cases(folder: Path) -> list[Case]:
    """Each parameter of each call with each wrong value, missing; and one that is not known."""
    found: list[Case] = []
    for name, (_, _, parameters) in sorted(valid_calls(folder).items()):
        found.append((name, "", UNEXPECTED))
        for parameter in parameters:
            found += [
                (name, parameter, wrong)
                for wrong in (*wrong_values(folder), MISSING)
                if (parameter, wrong) not in RIGHT and (name, parameter, wrong) not in STARTS
            ]
    return found


def tried(cases: Sequence[Case], folder: Path, worker: str = "worker") -> Iterator[Became]:
    """What became of each, in order, in processes of this module; one that hangs or dies is replaced."""
    done = 0
    while done < len(cases):
        before = done
        for became in _by_one_process(cases, folder, done, worker):
            done += 1
            yield became
        if done == before:
            yield Became(cases[done], "hangs or dies", "", SILENCE)
            done += 1


def _by_one_process(cases: Sequence[Case], folder: Path, first: int, worker: str) -> Iterator[Became]:
    command = [sys.executable, "-m", f"tests.wrong_inputs.{worker}", str(folder), str(first)]
    with (
        (folder / "errors.txt").open("a") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=REPOSITORY
        ) as process,
        selectors.DefaultSelector() as selector,
    ):
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(cases))
        process.stdin.close()
        selector.register(process.stdout, selectors.EVENT_READ)
        try:
            while selector.select(SILENCE) and (line := process.stdout.readline()):
                place, what, said, seconds = json.loads(line)
                yield Became(cases[place], what, said, seconds)
        finally:
            process.kill()
