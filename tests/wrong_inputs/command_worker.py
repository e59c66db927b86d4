"""The process in which wrong commands are tried: it prints what became of each as a line of JSON

python -m tests.wrong_inputs.command_worker FOLDER FIRST < cases.json
"""

import json
import os
import resource
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import typer

from d5ray.cli.app import app
from d5ray.display.visible_text import one_line
from d5ray.failures import finish
from tests.patience import patience
from tests.wrong_inputs.commands import Parameter, commands, texts, words

MORE_MEMORY = 2**30  # bytes that one command may take
SECONDS = 5.0  # on a machine that has nothing else to do
LONGEST = 3000  # characters that a person reads
LINE = typer.main.get_command(app)
LAST_WORDS = (
    "locked/runs cannot be written",
    "of 127.0.0.1 is taken",
)  # what a line without a mistake ends with here


SEVERAL_LINES = {("sql", "query")}  # DuckDB shows under the query what it does not understand


class TooLong(BaseException):
    """A command took longer than it may."""


def judged(name: str, parameter: str, wrong: str, code: int, err: str, folder: Path) -> str:
    """What became of a command, by its exit code and what it said."""
    if "Traceback" in err or "the traceback is in" in err:
        return "traceback"
    if code in (0, 1, 2) or (code == 3 and any(words in err for words in LAST_WORDS)):
        return "accepted"
    if code != 3:
        return f"exit code {code}"
    told = [line for line in err.splitlines() if not line.startswith("warning: ")]
    if (name, parameter) in SEVERAL_LINES:
        told = [" ".join(told)]
    if len(told) != 1 or not told[0].startswith("error: ") or len(told[0]) > LONGEST:
        return "not one line that can be read"
    said = next((each for each in commands()[name] if each.name == parameter), None)
    if not any(word in told[0].lower() for word in _names(said, wrong, folder)):
        return "not named"
    return "refused"


def _names(parameter: Parameter | None, wrong: str, folder: Path) -> set[str]:
    """Words of which one must be in an error: the parameter's, or the value's."""
    if parameter is None:
        return {"--unexpected"}
    names = {parameter.name, parameter.option, parameter.key, parameter.name.replace("_", " ")}
    value = texts(folder).get(wrong, "")
    if wrong == "empty" and not parameter.option:
        names.add("an argument")
    if wrong == "a dictionary":
        names.add("'x'")
    names |= {one_line(value)[:12], repr(value)[1:13], value.rpartition("/")[2][:12], value.split(",")[0]}
    return {each.lower() for each in names if each.strip()}


def outcome(name: str, parameter: str, wrong: str, folder: Path, busy: int) -> tuple[str, str]:
    """What became of one command, and what was said."""
    here = folder / "here"
    shutil.rmtree(here, ignore_errors=True)
    here.mkdir()
    os.chdir(here)
    locked = name in ("run", "tune") or name.startswith("bench ")
    os.environ["D5RAY_HOME"] = str(folder / ("locked" if locked else "home"))
    line = words(name, parameter, wrong, folder, busy)
    for stream in (1, 2):
        os.ftruncate(stream, 0)
        os.lseek(stream, 0, os.SEEK_SET)
    code = finish.code_of(LINE, line)
    sys.stdout.flush()
    sys.stderr.flush()
    err = (folder / "err").read_text("utf-8", "backslashreplace")
    became = judged(name, parameter, wrong, code, err, folder)
    if became == "refused" and (left := [each.name for each in here.rglob("*")]):
        return "refused, but left something", f"{left}"
    return became, err[:2000] or (folder / "out").read_text("utf-8", "backslashreplace")[:300]


def _too_long(*_: object) -> None:
    raise TooLong


def main() -> None:
    folder, first = Path(sys.argv[1]), int(sys.argv[2])
    cases: list[Any] = json.load(sys.stdin)
    said = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), stream)
    sys.stderr.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    signal.signal(signal.SIGALRM, _too_long)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        for name in {name for name, *_ in cases} - {"rerun"}:  # which looks for a Ray, and waits
            outcome(name, "", "nothing", folder, busy)  # everything is imported
        for place, (name, parameter, wrong) in enumerate(cases[first:], first):
            took = psutil.Process().memory_info().vms
            resource.setrlimit(resource.RLIMIT_AS, (took + MORE_MEMORY, resource.RLIM_INFINITY))
            began = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, patience(SECONDS))
            try:
                became, text = outcome(name, parameter, wrong, folder, busy)
            except TooLong:
                became, text = "too long", ""
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if "TooLong" in text:
                became = "too long"
            print(json.dumps([place, became, text, time.monotonic() - began]), file=said, flush=True)


if __name__ == "__main__":
    main()
