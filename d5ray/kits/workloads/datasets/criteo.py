"""Criteo's clicks on advertisements: thirteen numbers and twenty-six categories a row, all hashed"""

import gzip
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from d5ray.checks import check_count, check_number
from d5ray.errors import DataError
from d5ray.kits.workloads.datasets.clicks import Integers, hashed
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.datasets.published_files import by_hand, folders_of, reading, unfit

ADDRESS = "https://ailab.criteo.com/ressources/"
NAMES = ("train.txt", "train.txt.gz", "day_0", "day_0.gz")
NUMBERS, CATEGORIES = 13, 26
MISSING = 2**63  # no number and no category


def load_criteo(
    root: Path, download: bool, *, buckets: int = 100_000, rows: int = 1_000_000, test_fraction: float = 0.1
) -> Dataset:
    """Criteo's display advertising: samples (39,) int64 of rows of an embedding, 0..buckets−1, and the click.

    `root/criteo` (or `root`) has train.txt of the Kaggle contest, or day_0 of the terabyte logs, possibly
    as .gz: label, 13 integers, 26 categories in hexadecimal, with tabs between them; an empty one is
    missing. A number above 2 becomes ⌊(ln x)²⌋, a category of its own, as the contest's winners did it. The
    last rows test, since rows are in the order of time.

    Args:
        root: where the file lies.
        buckets: rows of the embedding, which all fields share, see `hashed`.
        rows: that are read, from the first on; they are kept in memory, 312 bytes each.
        test_fraction: above 0 and below 1.

    Raises:
        ConfigurationError: an option's value makes no sense.
        DataError: the file is missing or cannot be read, or a row is not of this form.

    Source: the Criteo AI lab's Kaggle display advertising challenge, 2014.
    """
    check_count("buckets", buckets)
    check_count("rows", rows, 2)
    check_number("test_fraction", test_fraction, low=0.0, low_included=False, high=1.0)
    folders = folders_of("criteo", root)
    path = next((file for each in folders for name in NAMES if (file := each / name).is_file()), None)
    if path is None:
        raise by_hand("criteo", " or ".join(NAMES), folders, ADDRESS, download)
    labels, values = _read(path, rows)
    tested = round(test_fraction * len(labels))
    if not 0 < tested < len(labels):
        raise DataError(
            f"{path}: found {len(labels)} rows, of which {tested} are to test, expected at least one to "
            "train and one to test: give more rows, or another test_fraction"
        )
    columns = [hashed(column, field, buckets) for field, column in enumerate(values.T)]
    inputs = np.stack(columns, axis=1)  # (N, 39)
    train, test = (
        Split(inputs[part].copy(), labels[part].copy()) for part in (slice(-tested), slice(-tested, None))
    )
    return Dataset("criteo", train, test, ("no click", "click"))


def _read(path: Path, rows: int) -> tuple[Integers, np.ndarray[Any, np.dtype[np.uint64]]]:
    """Labels (N,), and what was found in each field (N, 39)."""
    labels, values = [], []
    opened = gzip.open if path.suffix == ".gz" else open
    with reading(path, EOFError), opened(path, "rb") as file:
        for number, line in enumerate(islice(file, rows), 1):
            fields = line.rstrip(b"\r\n").split(b"\t")
            try:
                if len(fields) != 1 + NUMBERS + CATEGORIES:
                    raise ValueError(f"{len(fields)} fields")
                labels.append(("0", "1").index(fields[0].decode()))
                found = [_binned(int(each)) if each else MISSING for each in fields[1 : 1 + NUMBERS]]
                values.append(found + [int(each, 16) if each else MISSING for each in fields[1 + NUMBERS :]])
            except ValueError as error:
                raise unfit(
                    path, f"row {number} with {error}",
                    f"0 or 1, {NUMBERS} integers and {CATEGORIES} hexadecimal ones, between tabs",
                ) from error  # fmt: skip
    return np.array(labels, np.int64), np.array(values, np.uint64).reshape(-1, NUMBERS + CATEGORIES)


def _binned(number: int) -> int:
    """A category of a number: ⌊(ln x)²⌋ above 2, apart from small and negative ones."""
    if number > 2:
        return 1000 + int(np.log(number) ** 2)
    return number + 500 if number > -500 else 0
