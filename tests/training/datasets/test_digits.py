"""Claims about the digits: scikit-learn's own arrays, each sample once, the same on every machine."""

import numpy as np
import pytest
from sklearn import datasets

from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.dataset import Dataset


def rows(data: Dataset) -> np.ndarray:
    """Train and test as rows (1797, 65): grey values 0..16 and the label, in sorted order."""
    inputs = np.concatenate([data.train.inputs, data.test.inputs]).reshape(-1, 64) * 16
    labels = np.concatenate([data.train.labels, data.test.labels])
    table = np.column_stack([inputs, labels])
    return table[np.lexsort(table.T)]


@pytest.mark.parametrize("options", [{}, {"split_seed": 7}, {"test_fraction": 0.5}])
def test_train_and_test_hold_every_sample_exactly_once(options: dict[str, float]) -> None:
    """Whatever the split, train and test together are scikit-learn's samples and labels, each once."""
    images, labels = datasets.load_digits(return_X_y=True)
    table = np.column_stack([images, labels])
    expected = table[np.lexsort(table.T)]
    np.testing.assert_array_equal(rows(load_dataset("digits", **options)), expected)  # type: ignore[arg-type]


def test_digits_are_8_by_8_in_0_to_1() -> None:
    """1,438 train and 359 test samples (1, 8, 8); the grey values 0..16 fill 0..1; ten classes."""
    data = load_dataset("digits")
    assert (len(data.train), len(data.test), data.sample_shape) == (1438, 359, (1, 8, 8))
    assert (data.train.inputs.min(), data.train.inputs.max()) == (0, 1)
    assert data.classes == tuple("0123456789")


def test_equal_seeds_split_equally_and_others_do_not() -> None:
    """The split is a function of the seed."""
    first = load_dataset("digits", split_seed=1).fingerprint
    assert load_dataset("digits", split_seed=1).fingerprint == first
    assert load_dataset("digits", split_seed=2).fingerprint != first


def test_the_default_split_is_the_same_on_every_machine() -> None:
    """The default split has this fingerprint; another one means that recorded results no longer compare."""
    expected = "d27201b339c6501df2ff552b695c62d8183c9284e33779c83927b7262dc3b329"
    assert load_dataset("digits").fingerprint == expected


@pytest.mark.parametrize(("fraction", "count"), [(0.1, 180), (0.25, 449), (0.5, 898)])
def test_the_test_split_has_the_asked_share(fraction: float, count: int) -> None:
    """The test split has round(fraction * 1797) samples."""
    assert len(load_dataset("digits", test_fraction=fraction).test) == count
