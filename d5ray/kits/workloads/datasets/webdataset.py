"""WebDataset's tar files: members of one name are a sample, by their endings; read in place, in any order"""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from d5ray.errors import DataError, first_line, nearest
from d5ray.kits.workloads.datasets.record_files import RecordFiles
from d5ray.training.datasets.image_folder import SUFFIXES
from d5ray.training.datasets.published_files import reading
from d5ray.training.datasets.sample_form import Read
from d5ray.training.datasets.samples import Shape

IMAGES: Final = tuple(suffix[1:] for suffix in SUFFIXES)


@final
class WebDataset(RecordFiles):
    """The samples of a tar file, or of all in a folder in the order of their names.

    Members whose names agree up to the first dot are a sample, such as `0007.jpg` and `0007.cls`. The tar
    files are looked through once; then any sample can be read, in any order, without unpacking.

    Args:
        path: a file .tar, or a folder of them; agents get the path.
        inputs: the ending of the inputs, or several, of which a sample has one, such as "jpg;png": an image,
            .npy, or raw bytes with `shape`. labels: that of the labels: .cls (a number as text), or .npy.
        classes: their number.
        shape: of raw bytes. size: to which images are scaled and cut: pixels, or (height, width); None: they
            stay as they are, of uint8, and must have one size. channels: 3, or 1.

    Raises:
        ConfigurationError: the options make no sense.
        DataError: no such file, a compressed one, or a sample without inputs or label, with its name.
    """

    kind, pattern, known_by = "tar", "*.tar", "endings, such as 'jpg;png'"

    def __init__(
        self,
        path: str | Path,
        classes: int,
        *,
        inputs: str = "jpg;jpeg;png;npy",
        labels: str = "cls",
        shape: Shape | None = None,
        size: int | tuple[int, int] | None = None,
        channels: int = 3,
    ) -> None:
        self._members: list[str] = []  # the name of each sample
        super().__init__(path, classes, (inputs, labels), shape, size, channels)

    def _read(self, index: int) -> Read:
        number, *place = self._places[index].tolist()
        called = f"{self.what}: sample {index}, {self._members[index]!r}"
        with self._files[number].open("rb") as file:
            return self._part(file, place[:3], 0, called), self._part(file, place[3:], 1, called)

    def _part(self, file: Any, place: list[int], part: int, called: str) -> Any:
        begin, length, which = place
        file.seek(begin)
        data = file.read(length)
        ending = self.names[part].split(";")[which]
        called = f"{called}, .{ending}"
        if ending == "npy":
            try:
                return np.load(io.BytesIO(data), allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise DataError(f"{called}: found no array of numbers ({first_line(error)})") from error
        if part == 1:
            try:
                return int(data)
            except ValueError as error:
                raise DataError(f"{called}: found {data[:20]!r}, expected a number") from error
        if ending in IMAGES and self.decoding.size is None:
            return _pixels(data, called)
        return self.decoding.bytes(data, called)

    def _told(self) -> str:
        return f"webdataset {self.names} {self.decoding} {self._places[:, [2, 5]].tolist()}"

    def _places_in(self, file: Path) -> Iterator[tuple[int, ...]]:
        """First byte, bytes, and which of the endings it is, of the inputs and of the label."""
        for name, members in _grouped(file).items():
            place: list[int] = []
            for endings in self.names:
                which = next((at for at, each in enumerate(endings.split(";")) if each in members), None)
                if which is None:
                    raise DataError(
                        f"{file}: the sample {name!r} has no .{endings}: {nearest(endings, members)}"
                    )
                place += [*members[endings.split(";")[which]], which]
            self._members.append(name)
            yield tuple(place)


def _grouped(path: Path) -> dict[str, dict[str, tuple[int, int]]]:
    """First byte and length of every member of a tar file, by the name of its sample and its ending."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    try:
        with reading(path), tarfile.open(path, "r:") as archive:
            for member in archive:
                folder, slash, base = member.name.rpartition("/")
                name, dot, ending = base.partition(".")
                if member.isreg() and name and dot:
                    place = (member.offset_data, member.size)
                    found.setdefault(f"{folder}{slash}{name}", {})[ending.lower()] = place
    except (tarfile.TarError, EOFError) as error:
        raise DataError(
            f"{path}: found no plain tar file ({first_line(error)}), expected one that is not compressed: "
            "unpack it, so that any sample can be read"
        ) from error
    return found


def _pixels(data: bytes, called: str) -> Any:
    from PIL import Image  # noqa: PLC0415 - loaded when asked for

    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            return image
    except Exception as error:  # Pillow raises of every kind, SyntaxError too
        raise DataError(f"{called}: found an unreadable image ({first_line(error)})") from error
