"""WebDataset's tar files: members of one name are a sample, by their endings; read in place, in any order"""

import io
import tarfile
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from d5ray.checks import check_count, check_path
from d5ray.errors import ConfigurationError, DataError, first_line, nearest
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.encoded import Decoding, files_in
from d5ray.training.datasets.image_folder import SUFFIXES
from d5ray.training.datasets.one_by_one import OneByOne
from d5ray.training.datasets.published_files import unreadable
from d5ray.training.datasets.sample_form import Read
from d5ray.training.datasets.samples import Shape
from d5ray.training.datasets.splitting import with_test

IMAGES: Final = tuple(suffix[1:] for suffix in SUFFIXES)


@final
class WebDataset(OneByOne):
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
        if not isinstance(inputs, str) or not isinstance(labels, str):
            raise ConfigurationError(
                f"inputs is {inputs!r} and labels is {labels!r}: they must be endings, such as 'jpg;png'"
            )
        self.path, self.endings = check_path("path", path).absolute(), (inputs, labels)
        check_count("classes", classes)
        self.decoding = Decoding.of(shape, size, channels)
        self._files = files_in(self.path, "*.tar", "tar")
        self._names: list[str] = []
        places: list[tuple[int, ...]] = []  # file, and first byte, bytes and ending of inputs and label
        for number, file in enumerate(self._files):
            for name, members in _grouped(file).items():
                found = [_chosen(file, name, members, ending) for ending in self.endings]
                places.append((number, *found[0], *found[1]))
                self._names.append(name)
        if not places:
            raise DataError(f"{self.path}: found no sample, expected at least one: add some")
        self._places = np.array(places, np.int64)
        self._begin(str(self.path), classes)

    def __len__(self) -> int:
        return len(self._places)

    def _read(self, index: int) -> Read:
        number, *place = self._places[index].tolist()
        called = f"{self.what}: sample {index}, {self._names[index]!r}"
        with self._files[number].open("rb") as file:
            return self._part(file, place[:3], 0, called), self._part(file, place[3:], 1, called)

    def _part(self, file: Any, place: list[int], part: int, called: str) -> Any:
        begin, length, which = place
        file.seek(begin)
        data = file.read(length)
        ending = self.endings[part].split(";")[which]
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
        return f"webdataset {self.endings} {self.decoding} {self._places[:, [2, 5]].tolist()}"


def load_webdataset(
    *,
    train: str | Path,
    classes: int,
    test: str | Path | None = None,
    inputs: str = "jpg;jpeg;png;npy",
    labels: str = "cls",
    shape: Shape | None = None,
    size: int | tuple[int, int] | None = None,
    channels: int = 3,
    test_fraction: float = 0.2,
    split_seed: int = 500,
) -> Dataset:
    """Tar files to train on and to test on, see `WebDataset`.

    Without files to test on, a share of the samples does, chosen by `split_seed`.
    """
    options: dict[str, Any] = {"inputs": inputs, "labels": labels, "shape": shape, "size": size}
    options["channels"] = channels
    found = WebDataset(train, classes, **options)
    tests = None if test is None else WebDataset(test, classes, **options)
    return with_test("webdataset", found, tests, classes, test_fraction, split_seed)


def _grouped(path: Path) -> dict[str, dict[str, tuple[int, int]]]:
    """First byte and length of every member of a tar file, by the name of its sample and its ending."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    try:
        with tarfile.open(path, "r:") as archive:
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
    except OSError as error:
        raise unreadable(path, error) from error
    return found


def _chosen(path: Path, name: str, members: dict[str, tuple[int, int]], endings: str) -> tuple[int, int, int]:
    """First byte, length, and which of the endings a sample has."""
    for which, ending in enumerate(endings.split(";")):
        if ending in members:
            return *members[ending], which
    raise DataError(f"{path}: the sample {name!r} has no .{endings}: {nearest(endings, members)}")


def _pixels(data: bytes, called: str) -> Any:
    from PIL import Image  # noqa: PLC0415 - loaded when asked for

    try:
        with Image.open(io.BytesIO(data)) as image:
            image.load()
            return image
    except Exception as error:  # Pillow raises of every kind, SyntaxError too
        raise DataError(f"{called}: found an unreadable image ({first_line(error)})") from error
