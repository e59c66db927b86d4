"""MNIST and Fashion-MNIST, read from their four published IDX files."""

from pathlib import Path

from d5ray.checks import check_kind
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.datasets.download import fetch
from d5ray.training.datasets.idx import read_idx
from d5ray.training.datasets.pixels import checked_labels, scaled
from d5ray.training.datasets.published_files import (
    check_published,
    find,
    folders_of,
    missing,
    missing_error,
    unfit,
)

STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
# The compressed file comes first, because it has a published checksum.
NEEDED = tuple((f"{stem}.gz", stem) for stem in STEMS)

DIGITS = tuple("0123456789")
GARMENTS = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def load_mnist(root: Path, download: bool, *, checksum: bool = True) -> Dataset:
    """MNIST: 60,000 + 10,000 handwritten digits, inputs (N, 1, 28, 28) in 0..1, 10 classes.

    Args:
        root: the files lie in `root/mnist` or in `root`, with or without .gz.
        download: fetch into `root/mnist` what is missing.
        checksum: compare the .gz files with the published MD5.

    Raises:
        ConfigurationError: an option's value makes no sense.
        DataError: a file is missing, is not the published one, or is damaged.

    Source: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document
    recognition", Proceedings of the IEEE 86 (1998).
    """
    return _load("mnist", DIGITS, root, download, checksum)


def load_fashion_mnist(root: Path, download: bool, *, checksum: bool = True) -> Dataset:
    """Fashion-MNIST: 60,000 + 10,000 pictures of garments, inputs (N, 1, 28, 28) in 0..1, 10 classes.

    Its files have the same names as MNIST's. Without .gz nothing tells them apart, so keep them in
    `root/fashion_mnist` rather than in `root`. Arguments and errors: as `load_mnist`.

    Source: H. Xiao, K. Rasul, R. Vollgraf, arXiv:1708.07747.
    """
    return _load("fashion_mnist", GARMENTS, root, download, checksum)


def _load(name: str, classes: tuple[str, ...], root: Path, download: bool, checksum: bool) -> Dataset:
    check_kind("checksum", checksum, bool, "True or False")
    check_kind("download", download, bool, "True or False")
    paths = _locate(name, root, download, checksum)
    if checksum:
        for path in paths:
            check_published(name, path)
    train_images, train_labels, test_images, test_labels = paths
    return Dataset(
        name=name,
        train=_read_split(train_images, train_labels, len(classes)),
        test=_read_split(test_images, test_labels, len(classes)),
        classes=classes,
    )


def _locate(name: str, root: Path, download: bool, checksum: bool) -> tuple[Path, ...]:
    folders = folders_of(name, root)
    paths = find(folders, NEEDED)
    if paths is None and download:
        for compressed, _plain in missing(folders[0], NEEDED):
            fetch(name, compressed, folders[0], checksum=checksum)
        paths = find(folders, NEEDED)
    if paths is None:
        fewest = min((missing(folder, NEEDED) for folder in folders), key=len)
        raise missing_error(name, [f"{plain}(.gz)" for _compressed, plain in fewest], folders)
    return paths


def _read_split(images: Path, labels: Path, classes: int) -> Split:
    pixels = read_idx(images, rank=3)  # (N, 28, 28)
    if pixels.shape[1:] != (28, 28):
        raise unfit(images, f"images of {pixels.shape[1]} x {pixels.shape[2]} pixels", "28 x 28")
    numbers = read_idx(labels, rank=1)  # (N,)
    if len(numbers) != len(pixels):
        raise unfit(labels, f"{len(numbers)} labels", f"{len(pixels)}, one for each image of {images.name}")
    return Split(scaled(pixels[:, None]), checked_labels(numbers, classes, labels))
