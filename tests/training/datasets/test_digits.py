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


@pytest.mark.parametrize(
    ("options", "tested"),
    [({}, 359), ({"split_seed": 7}, 359), ({"test_fraction": 0.25}, 449), ({"test_fraction": 0.5}, 898)],
)
def test_train_and_test_hold_every_sample_exactly_once(options: dict[str, float], tested: int) -> None:
    """Whatever the split: scikit-learn's samples and labels, of which round(fraction · 1797) test."""
    images, labels = datasets.load_digits(return_X_y=True)
    table = np.column_stack([images, labels])
    expected = table[np.lexsort(table.T)]
    made = load_dataset("digits", **options)  # type: ignore[arg-type]
    np.testing.assert_array_equal(rows(made), expected)
    assert len(made.test) == tested


def test_digits_are_8_by_8_in_0_to_1() -> None:
    """Samples (1, 8, 8); the grey values 0..16 fill 0..1; ten classes."""
    data = load_dataset("digits")
    assert data.sample_shape == (1, 8, 8)
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
