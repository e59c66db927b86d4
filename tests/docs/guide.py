"""A page of the guide as its reader does it: its Python as one program, and the commands that can run"""

import io
import os
import re
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.conftest import ran
from tests.docs.page import DOCS

GUIDE = sorted((DOCS / "guide").glob("*.md"))
FENCE = re.compile(r"^```(?P<info>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
RUNS = "sh run"  # commands that need nothing but what stands above them
THEIRS = "python theirs"  # the code of another framework, beside d5ray's
NEEDS = "python needs "  # and a package that d5ray does not bring along: done where that is there
SAID = re.compile(r"print\(.*\)  # (?P<said>.*)$", re.MULTILINE)  # what a line prints stands behind it


@dataclass(frozen=True)
class Block:
    """A block of a page. line: the one in which its text begins, from 0; follows: at once on another."""

    kind: str
    text: str
    line: int
    follows: bool


def blocks(page: Path) -> list[Block]:
    """In their order."""
    text = page.read_text(encoding="utf-8")
    found: list[Block] = []
    end = 0
    for each in FENCE.finditer(text):
        follows = bool(found) and not text[end : each.start()].strip()
        line = text.count("\n", 0, each.start("body"))
        found.append(Block(each["info"].strip(), each["body"], line, follows))
        end = each.end()
    return found


def code(page: Path, also: tuple[str, ...] = ()) -> str:
    """The page's Python as one file, every line where it stands in the page. also: kinds of blocks."""
    lines: list[str] = []
    for block in blocks(page):
        if block.kind in ("python", *also):
            lines += [""] * (block.line - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n"


def follow(page: Path, folder: Path, also: tuple[str, ...] = ()) -> tuple[dict[str, Any], list[str]]:
    """Do what the page says in this folder: its names, and where it says something else than what was found.

    Its Python is the program `__main__`, as for who saves and starts it. What stands behind a `print`, and
    the block of text below a block, is compared with what was shown. also: kinds of blocks that are
    done, too.
    """
    script = folder / "page.py"
    script.write_text(code(page, also), encoding="utf-8")
    module = ModuleType("__main__")
    module.__file__ = str(script)
    before, sys.modules["__main__"] = sys.modules["__main__"], module
    wrong: list[str] = []
    shown = ""
    try:
        for block in blocks(page):
            if block.kind in ("python", *also):
                shown = _executed(block, script, module)
                wrong += _missing(SAID.findall(block.text), shown)
            elif block.kind == RUNS:
                shown = _commanded(block, folder)
            elif block.kind == "text" and block.follows and block.text not in shown:
                wrong.append(f"the page shows\n{block.text}found\n{shown}")
    finally:
        sys.modules["__main__"] = before
    return vars(module), wrong


def _executed(block: Block, script: Path, module: ModuleType) -> str:
    with redirect_stdout(io.StringIO()) as shown:
        exec(compile("\n" * block.line + block.text, str(script), "exec"), vars(module))
    return _bare(shown.getvalue())


def _commanded(block: Block, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = ("bash", "-euo", "pipefail", "-c", block.text)
    return _bare(ran(*command, cwd=folder, env={"PATH": path}, seconds=120).out)


def _bare(shown: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in shown.splitlines())


def _missing(said: list[str], shown: str) -> list[str]:
    """Lines that are said, and not shown in this order."""
    found = iter(shown.splitlines())
    return [f"the page says {line!r}, found\n{shown}" for line in said if line.partition(";")[0] not in found]
