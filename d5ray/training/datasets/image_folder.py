"""Images in folders, one folder a class; read when they are asked for"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_names, check_path
from d5ray.errors import DataError
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.image_files import decoded, image_shape
from d5ray.training.datasets.published_files import by_hand, folders_of, reading
from d5ray.training.datasets.samples import Array, Classified, Labels
from d5ray.training.datasets.splitting import with_test

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".gif")


@final
class ImageFolder(Classified):
    """Images (C, H, W) of 0..1 below a folder, `path/class/…/name.jpg`; classes and names are sorted.

    Args:
        path: the folder; agents get the path, so every node must have it.
        size: to which every image is scaled and cut: pixels, or (height, width).
        channels: 3 for colours, or 1 for greys.
        classes: the folders to read, in the order of their labels, of which some may lack; None: all, sorted.

    Raises:
        DataError: no folder, no class in it, or a class without images; later, an image cannot be read.
    """

    def __init__(
        self,
        path: str | Path,
        size: int | tuple[int, int] = 224,
        *,
        channels: int = 3,
        classes: tuple[str, ...] | None = None,
    ) -> None:
        self.sample_shape = image_shape(size, channels)
        self.path = check_path("path", path).absolute()
        self.classes = (
            _folders(self.path)
            if classes is None
            else check_names("classes", classes, "a tuple of folders' names")
        )
        names = [_images(self.path, name, needed=classes is None) for name in self.classes]
        self._names = np.array([name for each in names for name in each], dtype=np.bytes_)  # relative
        self._labels = np.repeat(np.arange(len(names), dtype=np.int64), [len(each) for each in names])

    def file(self, index: int) -> Path:
        """The file of a sample."""
        return self.path / os.fsdecode(bytes(self._names[index]))

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Array, Labels]:
        inputs = np.empty((len(indices), *self.sample_shape), np.float32)
        for place, index in enumerate(indices):
            file = self.file(index)
            inputs[place] = decoded(file, self.sample_shape, str(file))
        return inputs, self._labels[indices]

    def add_to(self, digest: "hashlib._Hash", part: str) -> None:
        """Names and bytes' counts of the files, and the size that images get; not what the files hold."""
        digest.update(f"{part} images {self.sample_shape} {self.classes}\n".encode())
        add_sizes(digest, self._names, self.file)


def add_sizes(digest: "hashlib._Hash", names: npt.NDArray[np.bytes_], file: Callable[[int], Path]) -> None:
    """Let the names of samples' files, and their bytes' counts, enter a hash."""
    for index, name in enumerate(names):
        with reading(path := file(index)):
            digest.update(bytes(name) + f" {path.stat().st_size}\n".encode())


def load_image_folder(
    *,
    path: str | Path,
    size: int | tuple[int, int] = 224,
    channels: int = 3,
    test_fraction: float = 0.2,
    split_seed: int = 500,
) -> Dataset:
    """Images below `path/train/class` and `path/val/class` (or `test`), see `ImageFolder`.

    Without a folder to test on, a share of the training images does, chosen by `split_seed`; without a
    folder `train` the classes lie in `path` itself.
    """
    folder = check_path("path", path).absolute()
    inner = folder / "train" if (folder / "train").is_dir() else folder
    found = ImageFolder(inner, size, channels=channels)
    held = [folder / name for name in ("val", "test") if inner != folder and (folder / name).is_dir()]
    tests = None
    if held:
        _check_known(held[0], found)
        tests = ImageFolder(held[0], size, channels=channels, classes=found.classes)
    return with_test(folder.name, found, tests, found.classes, test_fraction, split_seed)


def load_imagenet(
    root: Path, download: bool, *, size: int | tuple[int, int] = 224, channels: int = 3
) -> Dataset:
    """ImageNet's 1.28 million training and 50,000 validation images, in train/ and val/, a folder a class.

    The validation images must have been sorted into folders. With size=256 and the transformations
    `(Crop(224), RandomFlip(), Normalize(mean, std))` it is the usual preparation.

    Source: Russakovsky et al., ImageNet large scale visual recognition challenge, arXiv:1409.0575.
    """
    folders = folders_of("imagenet", root)
    for folder in folders:
        if (folder / "train").is_dir() and (folder / "val").is_dir():
            made = load_image_folder(path=folder, size=size, channels=channels)
            return Dataset("imagenet", made.train, made.test, made.classes)
    needed = "train/ and val/, each with a folder a class"
    raise by_hand(
        "imagenet", needed, folders, "https://image-net.org (for those who agree to its terms)", download
    )


def _folders(path: Path) -> tuple[str, ...]:
    try:
        found = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and entry.name[0] != ".")
    except OSError as error:
        raise DataError(
            f"{path}: found no folder that can be read ({error.strerror}), expected one with a folder "
            "for each class"
        ) from error
    if not found:
        raise DataError(f"{path}: found no folder in it, expected one for each class, with its images")
    return tuple(found)


def _images(path: Path, name: str, *, needed: bool) -> list[bytes]:
    """The images of a class, relative to the path, sorted."""
    found = [
        os.fsencode(os.path.relpath(os.path.join(folder, file), path))  # noqa: PTH118 - a million of them
        for folder, _, files in os.walk(path / name)
        for file in files
        if file.lower().endswith(SUFFIXES) and not file.startswith(".")
    ]
    if not found and needed:
        raise DataError(
            f"{path / name}: found no image, expected at least one ({', '.join(SUFFIXES)}): add some, or "
            "remove the folder"
        )
    return sorted(found)


def _check_known(folder: Path, train: ImageFolder) -> None:
    """Every class to test on must be one to train on; the other way round one may lack."""
    strangers = sorted(set(_folders(folder)) - set(train.classes))
    if strangers:
        raise DataError(
            f"{folder}: found the classes {', '.join(strangers[:5])}, expected those of {train.path}: sort "
            "the images of both in the same way"
        )
