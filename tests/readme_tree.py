"""The README's tree: every file with the first line of its docstring; run this file to write it."""

import ast
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
BEGIN, END = "<!-- tree -->\n```\n", "```\n<!-- /tree -->"
OTHERS = {
    ".ci/run": "what continuous integration runs: the test command, what is too long for it, older kernels",
    ".ci/tools": "installs Prometheus, Chromium and shellcheck for the tests that need them, where it can",
    "CONTRIBUTING.md": "how to set up, the floors, how code and tests should be",
    "LICENSE": "BSD-3-Clause",
    "Makefile": "run, test, test-full, test-older, test-slow, docs, tools, lint, clean",
    "benchmarks/RESULTS.md": "all figures that d5ray gives of itself, each with its command",
    "constraints.txt": "every version that the tests run with",
    "pyproject.toml": "package, extras, ruff, mypy, pytest, import-linter",
}
FOLDERS = ("d5ray", "actors", "ops", "recipes", "dashboards", "benchmarks", "tests")
WIDTH = 34


def tree() -> str:
    """The tree as text: folders with what they are, files with what they hold."""
    lines = []
    for folder in FOLDERS:
        lines += _folder(REPOSITORY / folder, 0)
    lines += _lessons(REPOSITORY / "docs")
    lines += [f"{name:<{WIDTH}} {text}" for name, text in sorted(OTHERS.items())]
    return "\n".join(lines) + "\n"


def _lessons(folder: Path) -> list[str]:
    pages = {path: _title(path) for path in (*folder.glob("*.md"), *folder.glob("*/*.rst"))}
    pages |= {path: _first_line(path) for path in folder.glob("*.py")}
    lines = [_line(path.relative_to(folder).as_posix(), text, 1) for path, text in sorted(pages.items())]
    return [_line("docs/", "lessons that run, and the reference", 0), *lines]


def _folder(folder: Path, depth: int) -> list[str]:
    init = folder / "__init__.py"
    title = _first_line(init) if init.exists() else ""
    lines = [_line(f"{folder.name}/", title, depth)]
    files = sorted(path for path in folder.iterdir() if path.suffix == ".py" and path.name != "__init__.py")
    inner = sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not path.is_symlink() and list(path.glob("*.py"))
    )
    lines += [_line(path.name, _first_line(path), depth + 1) for path in files]
    for path in inner:
        lines += _folder(path, depth + 1)
    return lines


def _line(name: str, text: str, depth: int) -> str:
    return f"{'  ' * depth + name:<{WIDTH}} {text}".rstrip()


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].rstrip(".")


def main() -> None:
    """Write the tree into the README."""
    readme = REPOSITORY / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(before + BEGIN + tree() + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
