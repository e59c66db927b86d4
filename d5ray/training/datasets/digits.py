"""The 1,797 handwritten digits that scikit-learn carries: real data without a download."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from d5ray.checks import check_count, check_number
from d5ray.errors import ConfigurationError
from d5ray.training.datasets.dataset import Dataset, Split

DIGITS = 1797


def load_digits(*, split_seed: int = 500, test_fraction: float = 0.2) -> Dataset:
    """Handwritten digits, 8 x 8 pixels, grey values 0..16 scaled to 0..1; 10 classes.

    A permutation seeded with `split_seed` decides; its first round(test_fraction * 1797) samples
    are the test split, so with the defaults 359 samples test and 1,438 train. Not stratified.

    Args:
        split_seed: seed of the permutation, >= 0; the same seed gives the same split on every machine.
        test_fraction: share of the test split, above 0 and below 1.

    Raises:
        ConfigurationError: an option's value makes no sense.

    Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning
    Repository (1998), doi:10.24432/C50P49; the test part, as scikit-learn ships it.
    """
    check_count("split_seed", split_seed, 0)
    check_number("test_fraction", test_fraction, low=0.0, low_included=False, high=1.0)
    images, labels = _as_shipped()
    inputs = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.Generator(np.random.PCG64(split_seed)).permutation(len(inputs))
    test_count = round(test_fraction * len(inputs))
    if not 0 < test_count < len(inputs):
        raise ConfigurationError(
            f"test_fraction={test_fraction!r} leaves {len(inputs) - test_count} samples to train and "
            f"{test_count} to test, expected at least 1 of each: set test_fraction=0.2"
        )
    test, train = order[:test_count], order[test_count:]
    labels = labels.astype(np.int64)
    return Dataset(
        name="digits",
        train=Split(inputs[train], labels[train]),
        test=Split(inputs[test], labels[test]),
        classes=tuple("0123456789"),
    )


def _as_shipped() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Grey values (1797, 64) and labels (1797,): scikit-learn's file, whose import takes a second, or what
    scikit-learn gives where another version of it keeps the file elsewhere.
    """
    package = find_spec("sklearn")
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.exists():
            table = np.loadtxt(file, delimiter=",")
            return table[:, :-1], table[:, -1]
    from sklearn import datasets  # noqa: PLC0415

    images, labels = datasets.load_digits(return_X_y=True)
    return images, labels
