"""Source of a C++ operator: in a text, or in a file"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import final

from d5ray.checks import check_text
from d5ray.errors import ConfigurationError, DataError


class Source(ABC):
    """The text of an operator, and how its wrapper includes it."""

    @abstractmethod
    def text(self) -> str:
        """The source code. Raises `DataError` if it cannot be read."""

    @abstractmethod
    def included(self, folder: Path) -> str:
        """The name by which a wrapper in this folder includes the source; writes it there if need be."""

    @property
    @abstractmethod
    def is_cuda(self) -> bool:
        """True if the source is CUDA, which needs a compiler of its own."""


@final
@dataclass(frozen=True)
class InlineSource(Source):
    """Code as a text; errors call it by the operator's name."""

    code: str
    file: str  # ipowop.cpp

    def text(self) -> str:
        return self.code

    def included(self, folder: Path) -> str:
        (folder / self.file).write_text(self.code, encoding="utf-8")
        return self.file

    @property
    def is_cuda(self) -> bool:
        return False


@final
@dataclass(frozen=True)
class FileSource(Source):
    """A file of the user's, which can include others that lie beside it."""

    path: Path

    def text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise DataError(
                f"the C++ file {self.path} cannot be read ({error.strerror}): name an existing file, or give "
                "the code itself"
            ) from error

    def included(self, folder: Path) -> str:
        return str(self.path.absolute())

    @property
    def is_cuda(self) -> bool:
        return self.path.suffix == ".cu"


def source_of(name: str, given: str | Path) -> Source:
    """A file for a path, or for one line that names one, `ops/ipow.cpp`; anything else is code.

    Raises `ConfigurationError` for anything but a path or a text.
    """
    if isinstance(given, Path):
        return FileSource(given)
    if not isinstance(given, str) or not given.strip():
        raise ConfigurationError(
            f"the code of the C++ operator {name} is {given!r}: give the code as a text, or the path of "
            "its file"
        )
    check_text(f"the code of the C++ operator {name}", given)
    if "\n" not in given and "{" not in given:
        return FileSource(Path(given))
    plain = "".join(letter for letter in name.partition("<")[0] if letter.isalnum() or letter == "_")
    return InlineSource(given, f"{plain or 'operator'}.cpp")
