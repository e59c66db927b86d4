"""A lesson as data: the files and the sessions of a page in Markdown, in their order"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
DOCS = REPOSITORY / "docs"
LESSONS = DOCS / "lessons"
FENCE = re.compile(r"^```(?P<language>\{?[\w+-]*\}?)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"^(?:#|//) (?P<name>[\w.-]+?)(?P<more>, continued)?$")
PICTURE = re.compile(r"!\[[^\]]*\]\(pictures/(?P<name>[\w.-]+)\)")
FILES = ("python", "cpp", "yaml", "bash", "dockerfile")  # languages of files
SESSION, ELSEWHERE = "console", "sh"  # what is run here; commands that need a cluster
VARIES = "# numbers vary"  # behind a command: its numbers are measured, and differ from run to run


@dataclass(frozen=True)
class Command:
    """A line typed in a session, and what the page says it shows. span: the place of that in the page."""

    line: str
    shown: str
    span: tuple[int, int]

    @property
    def varies(self) -> bool:
        """Whether its numbers differ from run to run."""
        return self.line.endswith(VARIES)


@dataclass(frozen=True)
class File:
    """A file that the reader saves; more: lines at the end of one that is there."""

    name: str
    text: str
    more: bool


@dataclass(frozen=True)
class Page:
    """A page, with what is done in it: `File`s and `Command`s in their order."""

    path: Path
    text: str
    steps: tuple[File | Command, ...]

    @classmethod
    def read(cls, path: Path) -> "Page":
        """Raises `ValueError` for a block that is neither a file with its name nor a session."""
        text = path.read_text(encoding="utf-8")
        return cls(path, text, tuple(_steps(path, text)))

    @property
    def files(self) -> list[File]:
        return [step for step in self.steps if isinstance(step, File)]

    @property
    def commands(self) -> list[Command]:
        return [step for step in self.steps if isinstance(step, Command)]

    @property
    def pictures(self) -> list[str]:
        """The names of the pictures that the page shows."""
        return [found["name"] for found in PICTURE.finditer(self.text)]

    @property
    def elsewhere(self) -> list[str]:
        """The blocks of commands that need a cluster."""
        return [each["body"] for each in FENCE.finditer(self.text) if each["language"] == ELSEWHERE]


def pages() -> list[Path]:
    """Every lesson: the pages in which something is done."""
    return [path for path in sorted(LESSONS.glob("*.md")) if Page.read(path).steps]


def _steps(path: Path, text: str) -> Iterator[File | Command]:
    for block in FENCE.finditer(text):
        language, body = block["language"], block["body"]
        if language == SESSION:
            yield from _commands(body, block.start("body"))
        elif language in FILES:
            named = next(filter(None, map(NAMED.match, body.splitlines()[:2])), None)
            if named is None:
                raise ValueError(f"{path.name}: a block of {language} does not begin with its name: {body!r}")
            yield File(named["name"], body, more=bool(named["more"]))
        elif language not in (ELSEWHERE, "text") and not language.startswith("{"):
            raise ValueError(f"{path.name}: a block is of {language!r}: it must be one of {FILES}, {SESSION}")


def _commands(body: str, begin: int) -> Iterator[Command]:
    """`$ command`, of which `> ` goes on with the line, and its output up to the next one."""
    typed = re.compile(r"^\$ (?P<line>.*(?:\n> .*)*)\n(?P<shown>(?:(?!\$ ).*\n)*)", re.MULTILINE)
    for found in typed.finditer(body):
        start, end = found.span("shown")
        yield Command(found["line"].replace("\n> ", "\n"), found["shown"], (begin + start, begin + end))
