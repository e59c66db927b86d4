"""What needs a kit: left out where the kit's folder is not there, and the summary says so; else it runs

The files of kits and what else needs one as a whole are rooms of tests/house.toml.
"""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

from d5ray.names import namespaces
from d5ray.names.kits import KITS

REPOSITORY = Path(__file__).parent.parent
TABLE = REPOSITORY / "tests" / "house.toml"
LINKS = ("actors", "ops", "recipes", "dashboards")  # below d5ray, to the folders at the top
ALSO_NEED = {"optimizer_comparison": "workloads"}  # it trains on text, and is the laboratory's

T = TypeVar("T")
_cases: Counter[str] = Counter()  # tables of which cases are left out, by kit


def there(kit: str) -> bool:
    """True if the kit's folder is in this checkout."""
    return (REPOSITORY / "d5ray" / "kits" / kit / "__init__.py").is_file()


def needs_kit(kit: str) -> pytest.MarkDecorator:
    """Skip a test or a case where the kit is not there."""
    return pytest.mark.skipif(not there(kit), reason=f"needs the kit {kit!r}: there is no d5ray/kits/{kit}")


def cases_of(kit: str, make: Callable[[], Iterable[T]]) -> list[T]:
    """The cases of a table that cannot be made without a kit; none where it is not there."""
    if there(kit):
        return list(make())
    _cases[kit] += 1
    return []


def with_kits(recipes: Iterable[str]) -> list[Any]:
    """Cases by names of recipes and benchmarks; those of a kit that is not there are skipped."""
    skip = pytest.mark.skip(reason="the recipe needs a kit that is not there")
    found = []
    for name in recipes:
        files = (REPOSITORY / "recipes" / f"{name}.py", REPOSITORY / "benchmarks" / name / "recipe.py")
        lacks = any(left_out(file) for file in files if file.exists())
        lacks = lacks or (name in ALSO_NEED and not there(ALSO_NEED[name]))
        found.append(pytest.param(name, marks=skip) if lacks else name)
    return found


def public_names() -> list[str]:
    """The public names, but those of kits that are not there."""
    found = ((name, namespaces.table(space)[name]) for name, space in namespaces.places().items())
    return [name for name, module in found if is_there(module)]


def is_there(module: str) -> bool:
    """False for a module of a kit that is not there."""
    return not module.startswith(f"{KITS}.") or there(module.split(".")[2])


def left_out(path: Path) -> bool:
    """True for a file of which a room with a kit that is not there consists."""
    name = path.relative_to(REPOSITORY).as_posix() if path.is_relative_to(REPOSITORY) else ""
    if name.startswith(tuple(f"d5ray/{link}/" for link in LINKS)):
        name = name.removeprefix("d5ray/")
    return name.endswith(".py") and name.startswith(_files())


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Pass over the files of a kit that is not there."""
    return True if left_out(collection_path) else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which kits are not there."""
    for kit in _rooms():
        if not there(kit):
            terminalreporter.write_line(
                f"without the kit {kit!r}: its files are not collected, nor cases of {_cases[kit]} tables"
            )


@cache
def _files() -> tuple[str, ...]:
    """How the paths of files begin that need a kit which is not there."""
    from tests.house import begins_of  # noqa: PLC0415 - only where a kit is missing

    missing = [files for kit, files in _rooms().items() if not there(kit)]
    return tuple(begin for files in missing for begin in begins_of(files))


@cache
def _rooms() -> dict[str, str]:
    """The files of each kit that is a folder of d5ray/kits, and of the rooms that need it."""
    table: dict[str, dict[str, Any]] = tomllib.loads(TABLE.read_text("utf-8"))
    rooms: dict[str, str] = {}
    for kind in table.keys() - {"figures"}:
        for name, room in table[kind].items():
            kit = room.get("needs", name if f"/kits/{name}" in room["files"] else "")
            if kit:
                rooms[kit] = f"{rooms.get(kit, '')} {room['files']}"
    return dict(sorted(rooms.items()))
