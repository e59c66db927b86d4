"""Files that hold many samples each, encoded images, raw bytes or lists of numbers; read in any order"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from d5ray.checks import check_count, check_path
from d5ray.errors import ConfigurationError, DataError
from d5ray.training.datasets.image_files import decoded, image_shape, numbers_shape
from d5ray.training.datasets.one_by_one import OneByOne
from d5ray.training.datasets.published_files import reading
from d5ray.training.datasets.samples import Array, Shape


@final
@dataclass(frozen=True)
class Decoding:
    """The way to a sample's inputs: images scaled to a size, or bytes and lists in a shape.

    shape: of raw bytes, which stay uint8, and of lists of numbers. size: of encoded images (C, H, W) of 0..1.
    """

    shape: Shape | None
    size: Shape | None

    @classmethod
    def of(cls, shape: Any, size: Any, channels: Any) -> "Decoding":
        """The decoding that these options say; raises `ConfigurationError`."""
        return cls(numbers_shape(shape), None if size is None else image_shape(size, channels))

    def bytes(self, data: bytes, called: str) -> Array:
        """Bytes as an image, or as they are; raises `DataError`."""
        if self.size is not None:
            return decoded(data, self.size, called)
        if self.shape is None:
            raise DataError(
                f"{called}: found bytes, expected numbers: say size=224 or the like if these are encoded "
                "images, or shape=(3, 32, 32) or the like if they are the pixels themselves"
            )
        return self.numbers(np.frombuffer(data, np.uint8), called)

    def numbers(self, values: Sequence[Any] | Array, called: str) -> Array:
        """Numbers in the shape; raises `DataError` where they are more or fewer."""
        found = np.asarray(values)
        if self.shape is None:
            return found
        if found.size != np.prod(self.shape, dtype=int):
            raise DataError(f"{called}: found {found.size} numbers, expected those of {self.shape}")
        return found.reshape(self.shape)


class RecordFiles(OneByOne):
    """The samples of a file, or of all in a folder in the order of their names.

    Where each begins is looked up once, when the files are looked through; then any can be read.

    path: agents get it. names: what is called the inputs, and what the labels; for the others see subclasses.
    """

    kind: ClassVar[str]  # of the files, for people
    pattern: ClassVar[str]  # of their names in a folder
    known_by: ClassVar[str]  # what inputs and labels are named by

    def __init__(
        self, path: str | Path, classes: int, names: tuple[str, str], shape: Any, size: Any, channels: int
    ) -> None:
        if not all(isinstance(name, str) for name in names):
            raise ConfigurationError(
                f"inputs is {names[0]!r} and labels is {names[1]!r}: they must be {self.known_by}"
            )
        self.path, self.names = check_path("path", path).absolute(), names
        check_count("classes", classes)
        self.decoding = Decoding.of(shape, size, channels)
        self._files = _files_at(self.path, self.pattern, self.kind)
        found = [
            (number, *place) for number, file in enumerate(self._files) for place in self._places_in(file)
        ]
        if not found:
            raise DataError(f"{self.path}: found no sample, expected at least one: add some")
        self._places = np.array(found, np.int64)  # file, and what says where a sample lies in it
        self._begin(str(self.path), classes)

    @final
    def __len__(self) -> int:
        return len(self._places)

    @abstractmethod
    def _places_in(self, file: Path) -> Iterator[tuple[int, ...]]:
        """The numbers that say where each sample of a file lies; raises `DataError` for a damaged one."""


def _files_at(path: Path, pattern: str, kind: str) -> tuple[Path, ...]:
    """A file, or those of a folder with such names, in their order; raises `DataError` without any."""
    with reading(path):
        listed = sorted(each for each in path.iterdir() if each.match(pattern)) if path.is_dir() else [path]
        found = tuple(each for each in listed if each.is_file())
    if not found:
        raise DataError(
            f"{path}: found no {kind} file, expected one, or a folder with files {pattern}: check the path, "
            "and that every node has it"
        )
    return found
