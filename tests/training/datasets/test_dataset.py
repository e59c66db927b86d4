"""Claims about Split and Dataset: what they accept, what they refuse, what the fingerprint covers."""

import hashlib
import pickle
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from d5ray.errors import DataError
from d5ray.training.datasets.dataset import Dataset, Split


def images(count: int, *, seed: int = 1) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).random((count, 2, 3, 4), dtype=np.float32)


def labels(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def small_dataset() -> Dataset:
    return Dataset("small", Split(images(3), labels(0, 1, 2)), Split(images(1), labels(2)), ("a", "b", "c"))


def test_shape_and_lengths_are_those_of_the_arrays() -> None:
    """A data set's sample shape is (C, H, W) of its inputs, and a split is as long as its labels."""
    data = small_dataset()
    assert (data.sample_shape, len(data.train), len(data.test)) == ((2, 3, 4), 3, 1)


def test_fingerprint_is_the_sha256_of_names_shapes_types_and_bytes() -> None:
    """The fingerprint is the SHA-256 of a header and the little-endian bytes of each array in turn."""
    data = small_dataset()
    expected = hashlib.sha256(
        b"train.inputs (3, 2, 3, 4) <f4\n" + data.train.inputs.astype("<f4").tobytes()
        + b"train.labels (3,) <i8\n" + data.train.labels.astype("<i8").tobytes()
        + b"test.inputs (1, 2, 3, 4) <f4\n" + data.test.inputs.astype("<f4").tobytes()
        + b"test.labels (1,) <i8\n" + data.test.labels.astype("<i8").tobytes()
    ).hexdigest()  # fmt: skip
    assert data.fingerprint == expected


def test_every_change_of_an_array_changes_the_fingerprint() -> None:
    """One changed pixel, one changed label, exchanged splits: each gives another fingerprint."""
    data = small_dataset()
    pixel = data.train.inputs.copy()
    pixel[2, 1, 2, 3] += 1
    variants = [
        data,
        replace(data, train=Split(pixel, data.train.labels)),
        replace(data, train=Split(data.train.inputs, labels(0, 1, 1))),
        replace(data, train=data.test, test=data.train),
    ]
    assert len({variant.fingerprint for variant in variants}) == len(variants)


def test_a_data_set_shows_its_parts_in_a_line() -> None:
    """Names, counts and shapes, and no arrays."""
    data = small_dataset()
    assert repr(data) == "Dataset('small', train: 3, test: 1, sample_shape=(2, 3, 4), 3 classes)"
    assert repr(data.test) == "Split(inputs (1, 2, 3, 4) float32, labels (1,) int64)"


def test_fingerprint_survives_pickling() -> None:
    """A data set that went through pickle has the fingerprint that it had."""
    data = small_dataset()
    assert pickle.loads(pickle.dumps(data)).fingerprint == data.fingerprint


@pytest.mark.parametrize(
    ("inputs", "targets", "message"),
    [
        (
            images(2).astype(np.float64),
            labels(0, 0),
            r"inputs: found .* of float64.*\(N, ...\) of float32 or int64",
        ),
        (images(2)[:, 0], labels(0, 0), r"inputs: found \(2, 3, 4\)"),
        (np.array(2, np.float32), labels(0, 0), r"inputs: found \(\) of float32"),
        (images(2).astype(np.int32), labels(0, 0), r"inputs: found .* of int32"),
        (images(4)[::2], labels(0, 0), "inputs: .*not C-contiguous"),
        (images(2).tolist(), labels(0, 0), "inputs: found list"),
        (images(2), labels(0, 0).astype(np.int32), r"labels: found \(2,\) of int32.*of int64"),
        (images(2), np.array(0), r"labels: found \(\) of int64"),
        (images(2), labels(0, 0, 0), "found 2 inputs and 3 labels"),
        (images(2), labels(0, -7), r"labels\[1\] is -7, expected 0 or more"),
        (images(2), labels(0, 1, 2, -7).reshape(2, 2), r"labels\[1, 1\] is -7, expected 0 or more"),
    ],
)
def test_split_refuses_what_does_not_fit(inputs: object, targets: object, message: str) -> None:
    """A wrong type, rank, order, length or sign is a DataError that says what was found."""
    with pytest.raises(DataError, match=message):
        Split(inputs, targets)  # type: ignore[arg-type]


def test_tokens_with_a_label_each_are_samples() -> None:
    """Inputs (N, T) and labels (N, T) of int64: as many samples as rows, of shape (T,)."""
    tokens = np.arange(12).reshape(3, 4)
    data = Dataset("tokens", Split(tokens, tokens), Split(tokens[:1], tokens[:1]), tuple(map(str, range(12))))
    assert (data.sample_shape, len(data.train)) == ((4,), 3)
    with pytest.raises(DataError, match=r"train.labels\[2, 3\] is 11, expected less than .* 11"):
        replace(data, classes=data.classes[:11])


def test_dataset_refuses_a_label_without_a_class() -> None:
    """A label equal to the number of classes is refused, with its place."""
    with pytest.raises(
        DataError, match=r"test.labels\[0\] is 2, expected less than the number of classes, 2"
    ):
        replace(small_dataset(), train=Split(images(1), labels(0)), classes=("a", "b"))


def test_dataset_refuses_splits_of_different_sample_shape() -> None:
    """Train and test samples must have one shape."""
    other = Split(np.zeros((1, 2, 4, 3), np.float32), labels(0))
    with pytest.raises(DataError, match=r"\(2, 3, 4\) and test samples of shape \(2, 4, 3\)"):
        replace(small_dataset(), test=other)


def test_dataset_refuses_an_empty_training_split() -> None:
    """There must be something to train on; an empty test split is allowed."""
    empty = Split(images(0), labels())
    assert len(replace(small_dataset(), test=empty).fingerprint) == 64
    with pytest.raises(DataError, match="0 training samples"):
        replace(small_dataset(), train=empty)
