"""Fetch one published file: all of it under its name, or nothing."""

import contextlib
import http.client
import shutil
import urllib.error
import urllib.request
import uuid
from pathlib import Path

from d5ray.errors import DataError
from d5ray.metrics.record.folders import make_folder
from d5ray.training.datasets.published import ADDRESSES, CHECKSUMS
from d5ray.training.datasets.published_files import md5_of

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
