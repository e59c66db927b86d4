"""Built operators under D5RAY_HOME/operators, by what they were built from; each is built once"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import final

from d5ray.errors import OperatorError, StorageError
from d5ray.metrics.record.folders import check_writable, home
from d5ray.operators.custom.cpp.compiler_messages import complaints, readable
from d5ray.operators.custom.cpp.compilers import Compiler, processor
from d5ray.operators.custom.cpp.source import Source
from d5ray.operators.custom.cpp.wrapper import Interface

INCLUDE = Path(__file__).parents[2] / "include"
_KEPT, _BUILDING = "built.json", "building-"


@final
@dataclass(frozen=True)
class BuildRecipe:
    """Everything that the compiled code depends on, but the files that the user's code includes."""

    interface: Interface
    source: Source
    definitions: Mapping[str, object]
    flags: Sequence[str] | None
    compiler: Compiler

    def library(self) -> Path:
        """The shared library, built now if it has not been.

        Raises `OperatorError` with the compiler's message, `StorageError` where nothing can be kept.
        """
        folder = home() / "operators" / f"{_plain(self.interface.name)}-{self._key()}"
        if (built := _built(folder)) is not None:
            return built
        check_writable(folder)
        with _locked(folder) as alone:
            if (built := _built(folder)) is not None:
                return built
            if alone:  # what is there was left by a process that was killed
                for left in folder.glob(f"{_BUILDING}*"):
                    shutil.rmtree(left, ignore_errors=True)
            return self._build(folder)

    def _key(self) -> str:
        headers = {path.name: path.read_text() for path in sorted(INCLUDE.glob("deep500/*.h"))}
        text = self.source.text()
        parts = [
            self.interface.code(text, "source"),
            text,
            str(self.source),
            self._defined(),
            list(self.flags) if self.flags is not None else None,
            [list(self.compiler.command), self.compiler.version],
            processor(),
            headers,
        ]
        return _digest(json.dumps(parts).encode())

    def _defined(self) -> list[str]:
        return [f"-D{name}={_value(value)}" for name, value in sorted(self.definitions.items())]

    def _build(self, folder: Path) -> Path:
        suffix = "cu" if self.source.is_cuda else "cpp"
        with tempfile.TemporaryDirectory(prefix=_BUILDING, dir=folder) as name:
            building = Path(name)
            wrapper = f"d5ray_wrapper.{suffix}"
            code = self.interface.code(self.source.text(), self.source.included(building))
            (building / wrapper).write_text(code, encoding="utf-8")
            done = self.compiler.run(
                [
                    *self._defined(), f"-I{INCLUDE}", "-MMD", "-MF", "made.d", "-o", "made.so",
                    wrapper, *self.compiler.flags(self.flags),  # libraries come after what needs them
                ],
                building,
            )  # fmt: skip
            if done.returncode != 0 or not (building / "made.so").exists():
                raise OperatorError(self._refused(done.stderr + done.stdout, wrapper))
            return _keep(building, folder)

    def _refused(self, output: str, wrapper: str) -> str:
        if told := complaints(output):
            return f"the C++ operator {self.interface.name} cannot be used: {'; '.join(told)}"
        return (
            f"the C++ operator {self.interface.name} does not compile; {self.compiler.title} says:\n"
            f"{readable(output, wrapper)}"
        )


def _built(folder: Path) -> Path | None:
    """The library, if it is whole, and the files that it was built from are as they were."""
    try:
        kept = json.loads((folder / _KEPT).read_text())
        library = folder / f"operator-{_contents(kept['files'])}.so"
        whole = _digest(library.read_bytes()) == kept["library"]  # to load half of one can end the process
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return library if whole else None


def _keep(building: Path, folder: Path) -> Path:
    """Make what was built visible, complete."""
    files = sorted(
        {
            str(path)
            for name in _dependencies((building / "made.d").read_text(encoding="utf-8"))
            if building not in (path := building / name).parents and INCLUDE not in path.parents
        }
    )
    try:
        library = folder / f"operator-{_contents(files)}.so"
        kept = {"files": files, "library": _digest((building / "made.so").read_bytes())}
        (building / _KEPT).write_text(json.dumps(kept))
        (building / "made.so").replace(library)
        (building / _KEPT).replace(folder / _KEPT)
    except OSError as error:
        raise StorageError(
            f"the built operator cannot be kept in {folder} ({error.strerror}): free some space there, or "
            "name another folder in D5RAY_HOME"
        ) from error
    return library


def _dependencies(rule: str) -> list[str]:
    """The files that a rule of make names: `made.so: a.cpp b\\ c.h`."""
    text = rule.replace("\\\n", " ").partition(":")[2]
    return [part.replace("\\ ", " ") for part in re.split(r"(?<!\\)\s+", text) if part]


def _contents(paths: Sequence[str]) -> str:
    """A digest of these files. Raises `OSError` where one is gone."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.encode() + b"\0" + hashlib.sha256(Path(path).read_bytes()).digest())
    return whole.hexdigest()[:24]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_")[:40] or "operator"


def _value(value: object) -> str:
    """A definition's value as C++ writes it."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """One process at a time, and whether it is so: where the file system has no locks, several may build."""
    with (folder / "lock").open("w") as file:
        try:
            import fcntl  # noqa: PLC0415 - not every system has it

            fcntl.flock(file, fcntl.LOCK_EX)
        except (OSError, ImportError):
            yield False
        else:
            yield True
