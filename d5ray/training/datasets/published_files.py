"""Files of published data sets: where they are, whether they are the published ones; fetched, and read"""

import contextlib
import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_path
from d5ray.errors import ConfigurationError, D5Error, DataError
from d5ray.metrics.record.folders import make_folder

# The folder on the web that holds a data set's files; ends with a slash.
ADDRESSES: dict[str, str] = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion_mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "cifar10": "https://www.cs.toronto.edu/~kriz/",
    "cifar100": "https://www.cs.toronto.edu/~kriz/",
}

# MD5 tells a damaged or mistaken file from the published one; against forgery it is no protection.
CHECKSUMS: dict[str, dict[str, str]] = {
    "mnist": {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    "cifar10": {
        "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
        "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    },
    "cifar100": {
        "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
        "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
    },
}


FETCH_AGAIN = "delete the file and fetch it again"


def default_root() -> Path:
    """The folder of all data sets: $D5RAY_DATA, else $D5RAY_HOME/data, else ~/d5ray/data."""
    if data := os.environ.get("D5RAY_DATA"):
        return check_path("D5RAY_DATA", data)
    if home := os.environ.get("D5RAY_HOME"):
        return check_path("D5RAY_HOME", home) / "data"
    return Path.home() / "d5ray" / "data"


def folders_of(dataset: str, root: Path) -> tuple[Path, Path]:
    """The folders that may have the files of a data set, the preferred first; downloads go to the first."""
    return root / dataset, root


def find(folders: Sequence[Path], needed: Sequence[tuple[str, ...]]) -> tuple[Path, ...] | None:
    """The needed files, all from the first folder that has them all, or None.

    One folder, because files of one name (MNIST's and Fashion-MNIST's) must not be mixed.

    Args:
        folders: where to look, in order of preference.
        needed: for each file the names that it may have, in order of preference.
    """
    for folder in folders:
        if not missing(folder, needed):
            return tuple(_present(folder, names)[0] for names in needed)
    return None


def missing(folder: Path, needed: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The files, by their alternative names, that the folder does not have."""
    return [names for names in needed if not _present(folder, names)]


def _present(folder: Path, names: tuple[str, ...]) -> list[Path]:
    with reading(folder):  # which may not be entered
        return [folder / name for name in names if (folder / name).is_file()]


def missing_error(dataset: str, lacking: Sequence[str], folders: Sequence[Path]) -> DataError:
    """The error for files that are not there: which, where they were looked for, how to get them."""
    looked = "\n".join(f"  {folder}" for folder in folders)
    return DataError(
        f"data set {dataset!r}: not found: {', '.join(lacking)}; expected in one of these folders:\n"
        f"{looked}\n"
        f"pass download=True, or fetch it from {ADDRESSES[dataset]} and place it in {folders[0]}"
    )


def by_hand(dataset: str, needed: str, folders: Sequence[Path], address: str, download: bool) -> D5Error:
    """The error for a data set that is not there, and that nobody can fetch from here."""
    if download:
        return ConfigurationError(
            f"data set {dataset!r} cannot be downloaded from here: fetch it from {address} and place "
            f"{needed} in {folders[0]}"
        )
    looked = "\n".join(f"  {folder}" for folder in folders)
    return DataError(
        f"data set {dataset!r}: not found: {needed}; expected in one of these folders:\n{looked}\n"
        f"fetch it from {address} and place it in {folders[0]}"
    )


def check_published(dataset: str, path: Path) -> None:
    """Compare a file's MD5 with the published one; a file without a published checksum passes.

    Raises:
        DataError: the checksum differs, or the file cannot be read.
    """
    expected = CHECKSUMS[dataset].get(path.name)
    if expected is None:
        return
    found = md5_of(path)
    if found != expected:
        others = [other for other, files in CHECKSUMS.items() if found in files.values()]
        remedy = f"{FETCH_AGAIN}, or pass checksum=False to read it as it is"
        if others:
            remedy = f"it is a file of {others[0]!r}: move it into a folder named {others[0]!r}"
        raise unfit(path, f"MD5 {found}", f"{expected}, the published file of {dataset!r}", remedy)


def md5_of(path: Path) -> str:
    """MD5 (hex) of a file's bytes."""
    with reading(path), path.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def unfit(origin: Path | str, found: str, expected: str, remedy: str = FETCH_AGAIN) -> DataError:
    """The error for a file that is there but wrong; `origin` is its path, or archive and member."""
    return DataError(f"{origin}: found {found}, expected {expected}: {remedy}")


@contextlib.contextmanager
def reading(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    """Raise `DataError` for a file that cannot be read or unpacked to its end, as these errors say, too."""
    said: tuple[type[Exception], ...] = (OSError, *kinds)
    try:
        yield
    except said as error:
        found = f"an unreadable file ({str(error) or type(error).__name__})"
        remedy = f"check its rights, or {FETCH_AGAIN}"
        raise unfit(path, found, "a readable, complete file", remedy) from error


def scaled(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Grey or colour values 0..255 as float32 in 0..1, of the same shape, C-contiguous."""
    return np.divide(pixels, np.float32(255), dtype=np.float32, order="C")


def checked_labels(
    labels: npt.NDArray[np.integer], classes: int, origin: Path | str
) -> npt.NDArray[np.int64]:
    """Labels (N,) as int64; DataError names the file, the place and the value of one that has no class."""
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        raise unfit(origin, f"label {labels[outside[0]]} at sample {outside[0]}", f"0 to {classes - 1}")
    return labels.astype(np.int64)


TIMEOUT_SECONDS = 30.0  # without a byte from the other side


def fetch(dataset: str, name: str, folder: Path, *, checksum: bool = True) -> Path:
    """Fetch a file of a data set into a folder, by way of a temporary file there and a rename.

    Processes that fetch the same file at once do not disturb each other: each writes a temporary
    file of its own, and the rename is atomic.

    Args:
        dataset: the data set's name, a key of `published.ADDRESSES`.
        name: the file's name, at the address and in the folder.
        folder: where to put it; made if it is not there.
        checksum: compare with the published MD5 before the file gets its name.

    Returns:
        The path of the file.

    Raises:
        DataError: the address cannot be reached, the answer is cut off or is not the published file,
            or the folder cannot be written. Nothing is left in the folder.
    """
    address = ADDRESSES[dataset] + name
    target = folder / name
    partial = folder / f".{name}.{uuid.uuid4().hex}.part"
    try:
        make_folder(folder)
        _receive(address, partial)
        if checksum:
            _check(address, partial, CHECKSUMS[dataset][name])
        partial.replace(target)
    except (OSError, http.client.HTTPException) as error:
        raise DataError(
            f"data set {dataset!r}: {address} could not be fetched ({type(error).__name__}: {error}), "
            f"expected {name} in {folder}: try again with a network, or fetch it elsewhere and place it "
            "there by hand"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # the error above says more than this one would
            partial.unlink()
    return target


def _receive(address: str, path: Path) -> None:
    request = urllib.request.Request(address, headers={"User-Agent": "d5ray"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer, path.open("xb") as stream:
            shutil.copyfileobj(answer, stream)
            promised = answer.headers.get("Content-Length")
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection open
        raise
    # A connection that closes early just ends the stream; only the length tells.
    received = path.stat().st_size
    if promised is not None and received != int(promised):
        raise ConnectionError(f"cut off after {received} of {promised} bytes")


def _check(address: str, path: Path, expected: str) -> None:
    found = md5_of(path)
    if found != expected:
        raise DataError(
            f"{address}: found {path.stat().st_size} bytes with MD5 {found}, expected {expected}: "
            "try again later, or fetch it by hand (a proxy may have answered instead); nothing was kept"
        )
