"""`make rooms`: product and tests by rooms, each within its budget, and what core, kits and tests import

A small file has 2 to 39 lines, and is hardly one idea; of one line are the `__init__.py` that say what a
package is for. `--imports` also lists the imports that are not allowed: which file imports which module.
`--today` writes today's numbers, rounded up, as budgets into the table; one that goes up needs a reason.
"""

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import grimp

REPOSITORY = Path(__file__).parent.parent
TABLE = "tests/house.toml"
PRODUCT = ("d5ray", "actors", "ops", "recipes", "dashboards", "benchmarks")
FRAMEWORKS = (f"d5ray.frameworks.{name}" for name in ("numpy", "cupy", "torch", "tensorflow", "jax"))
OPEN = ("d5ray.errors", *FRAMEWORKS)  # and what the table of docs/architecture.md declares for kits
DECLARED = re.compile(r"^\| `(d5ray[\w.]+)` \|", re.MULTILINE)
SMALL = 40  # lines
IMPORT = re.compile(r"^ *from (d5ray[\w.]*) import (?:\(([^)]*)\)|(.*))", re.MULTILINE)
FIELD = re.compile(r"^    ([a-z]\w*): ", re.MULTILINE)
CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)
BUDGET = re.compile(r'^(?:budget = .*|"(.*)" = .*)', re.MULTILINE)


@dataclass(frozen=True)
class Room:
    """A part of the house: of the core, a kit, or beside both."""

    name: str
    kind: str
    files: tuple[str, ...]  # how their paths begin
    budget: tuple[int, int]  # lines of the product and of tests, at most
    aim: int  # lines of the product


class House:
    """The files of the checkout by the rooms of a table, and what is counted over them."""

    def __init__(self, text: str, repository: Path = REPOSITORY) -> None:
        table = tomllib.loads(text)
        self.most: dict[str, int] = table.pop("figures")
        self.rooms = [
            Room(name, kind, tuple(begins_of(room["files"])), tuple(room["budget"]), room["aim"])
            for kind, rooms in table.items()
            for name, room in rooms.items()
        ]
        self.texts = {
            path.relative_to(repository).as_posix(): path.read_text("utf-8")
            for top in (*PRODUCT, "tests")
            for path in sorted((repository / top).rglob("*.py*"))
            if path.suffix in (".py", ".pyi")
        }
        begins = {begin: room for room in self.rooms for begin in room.files}
        longest = sorted(begins, key=len, reverse=True)
        self.room = {
            file: begins[next(begin for begin in longest if file.startswith(begin))] for file in self.texts
        }
        self.tests = [file for file in self.texts if file.startswith("tests/")]
        self.modules = {
            _module(file): file
            for file in self.texts
            if file.endswith(".py") and not file.startswith("tests/")
        }
        stubs = {file: text for file, text in self.texts.items() if file.endswith(".pyi")}
        declared = DECLARED.findall((repository / "docs/architecture.md").read_text("utf-8"))
        self.spaces = {*OPEN, *declared, *map(_module, stubs)}
        self.public = {name for text in stubs.values() for name in imported_of(text)}

    @cached_property
    def sizes(self) -> dict[Room, tuple[int, int, int, int]]:
        """Lines of the product, lines of tests, files of the product, and small ones of these, by room."""
        found = {room: [0, 0, 0, 0] for room in self.rooms}
        for file, text in self.texts.items():
            lines, is_test = text.count("\n"), file.startswith("tests/")
            counts = found[self.room[file]]
            counts[is_test] += lines
            if not is_test and file.endswith(".py"):
                counts[2] += 1
                counts[3] += 1 < lines < SMALL
        return {room: (a, b, c, d) for room, (a, b, c, d) in found.items()}

    @cached_property
    def imports(self) -> dict[str, list[tuple[str, str]]]:
        """The imports that the contract does not allow, by what is wrong with them: file and module."""
        core, kits, inner, tests = (list[tuple[str, str]]() for _ in range(4))
        graph = grimp.build_graph("d5ray", cache_dir=None)
        for module in sorted(graph.modules):
            file = self.modules[module]
            here, not_public = self.room[file], self._inner(file)
            for other in sorted(graph.find_modules_directly_imported_by(module)):
                there = self.room[self.modules[other]]
                if there.kind == "kit" and here != there:
                    (core if here.kind == "core" else kits).append((file, other))
                elif here.kind == "kit" and here != there and other in not_public:
                    inner.append((file, other))
        for file in self.tests:
            others = sorted(self._inner(file))
            tests += [(file, other) for other in others if self.room[self.modules[other]] != self.room[file]]
        return dict(zip(self.most, (core, kits, inner, tests), strict=False))

    def _inner(self, file: str) -> set[str]:
        """The modules of which a file imports what is not public."""
        places = {
            f"{module}.{name}" if f"{module}.{name}" in self.modules else module
            for module, name in imported_of(self.texts[file]) - self.public
        }
        return places & self.modules.keys() - self.spaces

    @cached_property
    def figures(self) -> dict[str, int]:
        """Counts of what makes a house hard to know, under their names in the table."""
        texts = {file: text for file, text in self.texts.items() if not file.startswith("tests/")}
        experiment = texts["d5ray/experiment.py"].partition("class Experiment:")[2].partition("    def ")[0]
        classes = Counter(name for text in texts.values() for name in CLASS.findall(text))
        counts = (
            *map(len, self.imports.values()),
            len(set(FIELD.findall(experiment))),
            sum(text.count("typer.Option(") for text in texts.values()),
            len(imported_of(texts["d5ray/__init__.pyi"])),
            sum(number > 1 for number in classes.values()),
            *(sum(size[which] for size in self.sizes.values()) for which in (2, 3)),
        )
        return dict(zip(self.most, counts, strict=True))

    def over(self) -> Iterator[str]:
        """What is over its budget, in words."""
        for room, sizes in self.sizes.items():
            for what, lines, most in zip(("the product", "tests"), sizes, room.budget, strict=False):
                if lines > most:
                    yield f"{room.name} has {lines:,} lines of {what}: at most {most:,} by {TABLE}"
        for name, count in self.figures.items():
            if count > self.most[name]:
                yield f"{count:,} {name}: at most {self.most[name]:,} by {TABLE}"

    def shown(self) -> Iterator[str]:
        """The tables, line by line."""
        rows: list[tuple[object, ...]] = [
            (room.name, room.kind, product, room.budget[0], room.aim, tests, room.budget[1], files, small)
            for room, (product, tests, files, small) in self.sizes.items()
        ]
        sums = [sum(column) for column in zip(*(row[2:] for row in rows), strict=True)]
        rows.append(("all", "", *sums))
        head = ("room", "", "lines", "at most", "aim", "tests", "at most", "files", f"< {SMALL}")
        for row in [head, *rows]:
            cells = (f"{cell:,}" if isinstance(cell, int) else cell for cell in row)
            yield "{:13}{:7}{:>8}{:>9}{:>8}{:>8}{:>9}{:>7}{:>6}".format(*cells)
        yield ""
        for name, count in self.figures.items():
            yield f"{count:6,}, at most {self.most[name]:6,}  {name}"

    def with_todays(self, table: str) -> str:
        """The table with today's numbers as budgets, rounded up; to those of lines a percent is added."""
        sizes = iter(self.sizes.values())  # in the order of the table

        def budget(line: re.Match[str]) -> str:
            if line[1]:
                count = self.figures[line[1]]
                return f'"{line[1]}" = {count if count < 100 else -(-count // 10) * 10}'
            return f"budget = {[-(-lines * 101 // 10_000) * 100 for lines in next(sizes)[:2]]}"

        return BUDGET.sub(budget, table)


def begins_of(words: str) -> Iterator[str]:
    """The words, each as often as there are choices in its braces, as in a shell: how a room's paths begin.

    >>> list(begins_of("a/{b,c}/{d,} e"))
    ['a/b/d', 'a/b/', 'a/c/d', 'a/c/', 'e']
    """
    for word in words.split():
        head, brace, rest = word.partition("{")
        choices, _, tail = rest.partition("}")
        if brace:
            yield from begins_of(" ".join(head + choice + tail for choice in choices.split(",")))
        else:
            yield word


def imported_of(text: str) -> set[tuple[str, str]]:
    """The names that a text imports of d5ray, each after the module that has it."""
    return {
        (module, name.split()[0])
        for module, lines, line in IMPORT.findall(text)
        for name in re.sub("#.*", "", lines or line).split(",")
        if name.strip()
    }


def _module(file: str) -> str:
    """The name by which a file is imported: `d5ray.actors` of `actors/__init__.py`."""
    name = file.partition(".")[0].replace("/", ".").removesuffix(".__init__")
    return name if name.partition(".")[0] in ("d5ray", "benchmarks") else f"d5ray.{name}"


def main(*options: str) -> int:
    """0 where everything is within its budget, else 1."""
    path = REPOSITORY / TABLE
    house = House(path.read_text("utf-8"))
    if "--today" in options:
        path.write_text(house.with_todays(path.read_text("utf-8")), "utf-8")
        house = House(path.read_text("utf-8"))
    over, lines = list(house.over()), list(house.shown())
    for name, found in house.imports.items() if "--imports" in options else ():
        lines += ["", name, *(f"    {file}: {module}" for file, module in found)]
    print(*lines, "", *over, sep="\n")  # noqa: T201
    return bool(over)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
