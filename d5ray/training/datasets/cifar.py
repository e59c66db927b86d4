"""CIFAR-10 and CIFAR-100, read from any of their published editions, packed or unpacked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from d5ray.checks import check_kind
from d5ray.errors import ConfigurationError, nearest
from d5ray.training.datasets.cifar_records import (
    CIFAR10,
    CIFAR100_COARSE,
    CIFAR100_FINE,
    Records,
    read_binary,
    read_pickled,
)
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.datasets.published_files import (
    check_published,
    checked_labels,
    fetch,
    find,
    folders_of,
    missing,
    missing_error,
    reading,
    scaled,
)
from d5ray.training.datasets.tar_archive import read_members


@dataclass(frozen=True)
class Edition:
    """One published form of a data set: an archive, and the folder that comes out of it."""

    archive: str
    folder: str
    train: tuple[str, ...]
    test: str
    read: Callable[[bytes, str], Records]

    @property
    def needed(self) -> tuple[str, ...]:
        """The names of the files with samples, the test set's last."""
        return (*self.train, self.test)


def load_cifar10(root: Path, download: bool, *, checksum: bool = True) -> Dataset:
    """CIFAR-10: 50,000 + 10,000 colour pictures, inputs (N, 3, 32, 32) in 0..1, 10 classes.

    Args:
        root: in `root/cifar10` or `root` lies the binary edition (`cifar-10-binary.tar.gz`, or its .bin
            files with or without their folder) or the Python one. A downloaded archive is not unpacked.
        download: fetch the binary edition into `root/cifar10` if there is none.
        checksum: compare an archive with the published MD5.

    Raises:
        ConfigurationError: an option's value makes no sense.
        DataError: a file is missing, is not the published one, or is damaged.

    Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images" (2009).
    """
    batches = tuple(f"data_batch_{number}" for number in range(1, 6))
    binary = Edition(
        archive="cifar-10-binary.tar.gz",
        folder="cifar-10-batches-bin",
        train=tuple(f"{batch}.bin" for batch in batches),
        test="test_batch.bin",
        read=partial(read_binary, label_bytes=1, label_at=0),
    )
    python = Edition(
        archive="cifar-10-python.tar.gz",
        folder="cifar-10-batches-py",
        train=batches,
        test="test_batch",
        read=partial(read_pickled, label_key="labels"),
    )
    return _load("cifar10", (binary, python), CIFAR10, root, download, checksum)


def load_cifar100(root: Path, download: bool, *, checksum: bool = True, labels: str = "fine") -> Dataset:
    """CIFAR-100: as CIFAR-10, with 100 classes ("fine") in 20 groups ("coarse").

    Args:
        root: as `load_cifar10`, in `root/cifar100` or `root`; the archive is `cifar-100-binary.tar.gz`.
        download: fetch the binary edition into `root/cifar100` if there is none.
        checksum: compare an archive with the published MD5.
        labels: "fine" or "coarse".

    Errors and source: as `load_cifar10`.
    """
    if labels not in ("fine", "coarse"):
        raise ConfigurationError(f"labels={labels!r}: {nearest(labels, ('fine', 'coarse'))}")
    binary = Edition(
        archive="cifar-100-binary.tar.gz",
        folder="cifar-100-binary",
        train=("train.bin",),
        test="test.bin",
        read=partial(read_binary, label_bytes=2, label_at=1 if labels == "fine" else 0),
    )
    python = Edition(
        archive="cifar-100-python.tar.gz",
        folder="cifar-100-python",
        train=("train",),
        test="test",
        read=partial(read_pickled, label_key=f"{labels}_labels"),
    )
    classes = CIFAR100_FINE if labels == "fine" else CIFAR100_COARSE
    return _load("cifar100", (binary, python), classes, root, download, checksum)


def _load(
    name: str,
    editions: Sequence[Edition],
    classes: tuple[str, ...],
    root: Path,
    download: bool,
    checksum: bool,
) -> Dataset:
    check_kind("checksum", checksum, bool, "True or False")
    check_kind("download", download, bool, "True or False")
    edition, place = _locate(name, editions, root, download, checksum)
    if checksum and place.is_file():
        check_published(name, place)
    files = _read_files(edition, place)
    return Dataset(
        name=name,
        train=_read_split(edition, place, edition.train, files, len(classes)),
        test=_read_split(edition, place, (edition.test,), files, len(classes)),
        classes=classes,
    )


def _read_split(
    edition: Edition, place: Path, names: Sequence[str], files: dict[str, bytes], classes: int
) -> Split:
    pixels, labels = [], []
    for name in names:
        origin = f"{place}: {name}"
        images, numbers = edition.read(files[name], origin)  # (N, 3, 32, 32), (N,)
        pixels.append(images)
        labels.append(checked_labels(numbers, classes, origin))
    return Split(scaled(np.concatenate(pixels)), np.concatenate(labels))


def _locate(
    name: str, editions: Sequence[Edition], root: Path, download: bool, checksum: bool
) -> tuple[Edition, Path]:
    """An edition, and its archive or the folder in which its files lie."""
    folders = folders_of(name, root)
    for edition in editions:
        if unpacked := find(_unpacked_folders(edition, folders), [(file,) for file in edition.needed]):
            return edition, unpacked[0].parent
        if packed := find(folders, [(edition.archive,)]):
            return edition, packed[0]
    if download:
        return editions[0], fetch(name, editions[0].archive, folders[0], checksum=checksum)
    lacking = [editions[0].archive]
    for edition in editions:
        for folder in _unpacked_folders(edition, folders):
            absent = [file for (file,) in missing(folder, [(file,) for file in edition.needed])]
            if len(absent) < len(edition.needed):
                lacking.append(f"the rest of {folder} ({', '.join(absent)})")
    raise missing_error(name, [" or ".join(lacking)], folders)


def _unpacked_folders(edition: Edition, folders: Sequence[Path]) -> list[Path]:
    return [place for folder in folders for place in (folder / edition.folder, folder)]


def _read_files(edition: Edition, place: Path) -> dict[str, bytes]:
    if place.is_file():
        return read_members(place, edition.folder, edition.needed)
    with reading(place):
        return {file: (place / file).read_bytes() for file in edition.needed}
