"""Does a lesson as its reader would, in an empty folder; run this module to write what they show.

python -m tests.docs.lessons             # all pages
python -m tests.docs.lessons operator    # docs/lessons/operator.md
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.docs.page import LESSONS, REPOSITORY, Command, File, Page, pages
from tests.patience import patience

SECONDS = 420  # for one command
HOME, FOLDER = "/home/you/d5ray", "/home/you/lesson"  # how the pages call them
RUN = re.compile(r"\b([\w-]+?)-\d{8}-\d{6}-[0-9a-f]{8}\b")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?%?")
SAME = 0.02  # relative: what another processor's arithmetic may make of a number with a decimal point


@dataclass(frozen=True)
class Done:
    """A command that was run, and what it showed."""

    command: Command
    found: str


def follow(
    page: Page, folder: Path, python: Path = Path(sys.executable), checkout: bool = True
) -> list[Done]:
    """Do the page's steps in this folder, by the d5ray of this Python; raises where a command fails."""
    home = folder / ".home"
    env = os.environ | {
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "D5RAY_HOME": str(home),
        "PYTHONPATH": str(REPOSITORY) if checkout else "",
        "RAY_USAGE_STATS_ENABLED": "0",
        "COLUMNS": "110",
        "OMP_NUM_THREADS": "1",
    }
    done = []
    for step in page.steps:
        if isinstance(step, File):
            with (folder / step.name).open("a" if step.more else "w", encoding="utf-8") as file:
                file.write(step.text)
            continue
        ended = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {step.line}"],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience(SECONDS),
            check=False,
        )
        if ended.returncode:
            raise RuntimeError(f"{page.path.name}: $ {step.line}\n{ended.stdout}exit code {ended.returncode}")
        done.append(Done(step, _as_seen(ended.stdout, home, folder)))
    return done


def differences(done: list[Done]) -> list[str]:
    """Where the pages say something else than what was found."""
    wrong = []
    for each in done:
        shown, found = each.command.shown, each.found
        if not (alike(shown, found) if each.command.varies else same(shown, found)):
            wrong.append(f"$ {each.command.line}\nthe page shows\n{shown}found\n{found}")
    return wrong


def alike(shown: str, found: str) -> bool:
    """Whether both are the same words, where numbers vary, and with them the width of columns."""
    return _words(shown) == _words(found)


def same(shown: str, found: str) -> bool:
    """Whether both are the same text, but for the names of runs and the last digits of decimal numbers."""
    shown, found = (RUN.sub(r"\1-RUN", text) for text in (shown, found))
    if NUMBER.sub("#", shown) != NUMBER.sub("#", found):
        return False
    return all(map(_near, NUMBER.findall(shown), NUMBER.findall(found)))


def _near(one: str, other: str) -> bool:
    if one == other:
        return True
    if "." not in one and "e" not in one:
        return False
    first, second = (float(each.rstrip("%").replace(",", "")) for each in (one, other))
    last = 10.0 ** -len(one.rstrip("%").partition("e")[0].partition(".")[2])
    exponent = int(one.rstrip("%").partition("e")[2] or 0)
    return abs(first - second) <= SAME * max(abs(first), abs(second)) + 1.01 * last * 10.0**exponent


def _words(text: str) -> str:
    return " ".join(NUMBER.sub("#", RUN.sub(r"\1-RUN", text)).split())


def _as_seen(output: str, home: Path, folder: Path) -> str:
    text = output.replace(str(home), HOME).replace(str(folder), FOLDER)
    text = "\n".join(line.rstrip() for line in text.splitlines())
    return text + "\n" if text else ""


def write(path: Path) -> None:
    """Let the page show what its commands show, and take the pictures that they make."""
    page = Page.read(path)
    with tempfile.TemporaryDirectory(prefix="d5ray-lesson-") as temporary:
        folder = Path(temporary).resolve()
        text, done = page.text, follow(page, folder)
        for each in reversed(done):
            begin, end = each.command.span
            text = text[:begin] + each.found + text[end:]
        for name in page.pictures:
            shutil.copyfile(folder / name, LESSONS / "pictures" / name)
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Write the pages that are named, or all."""
    for path in [LESSONS / f"{name}.md" for name in sys.argv[1:]] or pages():
        sys.stdout.write(f"{path.name}\n")
        sys.stdout.flush()
        write(path)


if __name__ == "__main__":
    main()
