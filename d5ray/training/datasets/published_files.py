"""Files of published data sets: where they are looked for, and whether they are the published ones."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from d5ray.checks import check_path
from d5ray.errors import ConfigurationError, D5Error, DataError
from d5ray.training.datasets.published import ADDRESSES, CHECKSUMS

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
    try:
        return [folder / name for name in names if (folder / name).is_file()]
    except OSError as error:  # a folder that may not be entered
        raise unreadable(folder, error) from error


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
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error


def unfit(origin: Path | str, found: str, expected: str, remedy: str = FETCH_AGAIN) -> DataError:
    """The error for a file that is there but wrong; `origin` is its path, or archive and member."""
    return DataError(f"{origin}: found {found}, expected {expected}: {remedy}")


def unreadable(path: Path, error: Exception) -> DataError:
    """The error for a file that cannot be read or unpacked to its end."""
    detail = str(error) or type(error).__name__
    return unfit(
        path,
        f"an unreadable file ({detail})",
        "a readable, complete file",
        f"check its rights, or {FETCH_AGAIN}",
    )
