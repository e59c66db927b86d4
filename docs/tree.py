"""The map of files: every folder, every file in it with the first line of its docstring"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
FOLDERS = ("d5ray", "actors", "ops", "recipes", "dashboards", "benchmarks", "tests")
OTHERS = {
    ".ci/run": "what continuous integration runs: the test command, after the tools that some tests need",
    ".ci/timed": "runs a command and notes its seconds for the last lines of `make test`",
    ".ci/tools": "installs Prometheus, Chromium and shellcheck for the tests that need them, where it can",
    "CONTRIBUTING.md": "what to touch to add something, the floors, the gate, how code and tests should be",
    "LICENSE": "BSD-3-Clause",
    "Makefile": "run, test and its longer suites, docs, tools, lint, clean",
    "README.md": "what d5ray is, and how to begin",
    "SECURITY.md": "what is promised on machines with other users, and what is not",
    "benchmarks/RESULTS.md": "all figures that d5ray gives of itself, each with its command",
    "constraints.txt": "every version that the tests run with",
    "pyproject.toml": "package, extras, ruff, mypy, pytest, import-linter",
}


@dataclass(frozen=True)
class MappedFolder:
    """A folder: its path from the top, what it is, and its files with what they hold."""

    path: str
    about: str
    files: dict[str, str]


def folders() -> list[MappedFolder]:
    """All that hold Python or pages, a folder before those in it; last what stands beside them."""
    found = [each for name in FOLDERS for each in _inside(REPOSITORY / name)]
    docs = REPOSITORY / "docs"
    pages = {path: _title(path) for path in (*docs.rglob("*.md"), *docs.rglob("*.rst"))}
    pages |= {path: _first_line(path) for path in docs.glob("*.py")}
    files = {path.relative_to(docs).as_posix(): text for path, text in sorted(pages.items())}
    found.append(MappedFolder("docs", "Lessons that run, the guide by topic, and the reference", files))
    return [*found, MappedFolder("", "Beside the folders", OTHERS)]


def _inside(folder: Path) -> Iterator[MappedFolder]:
    init = folder / "__init__.py"
    files = {
        path.name: _first_line(path) for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"
    }
    about = _first_line(init) if init.exists() else ""
    yield MappedFolder(folder.relative_to(REPOSITORY).as_posix(), about, files)
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and list(path.rglob("*.py")):
            yield from _inside(path)


def _title(path: Path) -> str:
    """The first line of a page, or of the one that it includes."""
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    if first.startswith("```{include} "):
        return _title(path.parent / first.split()[-1])
    return first.removeprefix("# ")


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].rstrip(".")
