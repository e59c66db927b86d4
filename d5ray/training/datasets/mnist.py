"""MNIST and Fashion-MNIST, read from their four published files, which are of the IDX format"""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_kind
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
    unfit,
)

UNSIGNED_BYTE = 0x08
TYPE_NAMES = {0x08: "uint8", 0x09: "int8", 0x0B: "int16", 0x0C: "int32", 0x0D: "float32", 0x0E: "float64"}
MAX_BYTES = 1 << 30  # MNIST's largest file has 47 MB; a header that promises more than this is wrong


def read_idx(path: Path, rank: int) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzip-compressed if its name ends with .gz.

    The header is big-endian: two zero bytes, the type code (0x08: unsigned byte), the number of
    axes, then one 32-bit size per axis; the data follow in C order and end the file.

    Args:
        path: the file.
        rank: the number of axes that it must have (3 for images, 1 for labels).

    Returns:
        The array, uint8, with the sizes that the header states.

    Raises:
        DataError: the file is no such file, or is shorter or longer than its header says.

    Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits".
    """
    opened = gzip.open if path.suffix == ".gz" else open
    with reading(path, EOFError, zlib.error), opened(path, "rb") as stream:
        magic = stream.read(4)
        _check_magic(path, magic, rank)
        header = stream.read(4 * rank)
        if len(header) < 4 * rank:
            raise unfit(path, f"{4 + len(header)} bytes", f"a header of {4 + 4 * rank} bytes")
        shape = struct.unpack(f">{rank}I", header)
        size = _check_size(path, shape)
        # One byte more than promised: it tells a longer file, and makes gzip check its sum.
        data = stream.read(size + 1)
    if len(data) != size:
        found = f"{len(data)} bytes" if len(data) < size else "more bytes"
        raise unfit(path, f"{found} after the header", f"{size} bytes for the shape {shape}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _check_magic(path: Path, magic: bytes, rank: int) -> None:
    expected = bytes([0, 0, UNSIGNED_BYTE, rank])
    if magic == expected:
        return
    found = f"the magic number 0x{magic.hex()}" if magic else "an empty file"
    if len(magic) == 4 and magic[:2] == b"\0\0":
        found += f" (IDX, {TYPE_NAMES.get(magic[2], 'an unknown type')}, axes: {magic[3]})"
    raise unfit(path, found, f"0x{expected.hex()} (IDX, uint8, axes: {rank})")


def _check_size(path: Path, shape: tuple[int, ...]) -> int:
    size = math.prod(shape)
    if not 0 < size <= MAX_BYTES:
        raise unfit(path, f"the shape {shape}, {size} bytes, in the header", f"1 to {MAX_BYTES} bytes")
    return size


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
