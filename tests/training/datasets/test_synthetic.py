"""Claims about made-up samples: each belongs to its number, in any shape, and can be learned"""

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError, DataError
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.datasets.synthetic import Synthetic

shapes = st.lists(st.integers(1, 20), min_size=1, max_size=4).map(tuple)


@pytest.mark.full
@given(shapes, st.integers(1, 7), st.lists(st.integers(0, 999), max_size=12), st.integers(0, 3))
def test_a_sample_is_that_of_its_number(
    shape: tuple[int, ...], classes: int, indices: list[int], seed: int
) -> None:
    """Alone, in any batch, after pickling: the same float32 of that shape, and a label below the classes."""
    made = Synthetic(shape, classes, 1000, seed=seed)
    inputs, labels = made.take(np.array(indices, dtype=np.int64))
    assert inputs.shape == (len(indices), *shape) and inputs.dtype == np.float32
    assert labels.dtype == np.int64 and ((labels >= 0) & (labels < classes)).all()
    other = pickle.loads(pickle.dumps(made))
    for place, index in enumerate(indices):
        alone, label = other.take(np.array([index]))
        np.testing.assert_array_equal(alone[0], inputs[place])
        assert label[0] == labels[place] == made.labels[index]


def test_classes_come_evenly_and_noise_is_what_it_says() -> None:
    """10,000 labels of 5 classes by χ² within 5 σ; the residuals' deviation is the noise to 1 %."""
    made = Synthetic((3, 6, 6), 5, 10_000, seed=2, noise=0.5)
    counts = np.bincount(made.labels, minlength=5)
    assert abs(((counts - 2000) ** 2 / 2000).sum() - 4) < 5 * np.sqrt(8)
    inputs = made.inputs
    residuals = np.concatenate(
        [inputs[made.labels == c] - inputs[made.labels == c].mean(axis=0) for c in range(5)]
    )
    assert residuals.std() == pytest.approx(0.5, rel=0.01)


def test_without_noise_samples_of_a_class_are_equal_and_of_two_are_not() -> None:
    """As many different samples as classes."""
    made = Synthetic((2, 5, 5), 4, 100, noise=0.0)
    assert len(np.unique(made.inputs, axis=0)) == 4


def test_patterns_are_coarse() -> None:
    """A 16 × 16 sample without noise is 8 × 8 cells of 2 × 2 equal pixels, so that convolutions see them."""
    (image,), _ = Synthetic((1, 16, 16), noise=0.0).take(np.array([3]))
    np.testing.assert_array_equal(image, np.kron(image[:, ::2, ::2], np.ones((1, 2, 2), np.float32)))


def test_the_test_split_can_be_predicted_from_the_training_split() -> None:
    """The nearest class mean of the training split is right for at least 95 % of other samples."""
    data = load_dataset("synthetic", shape=(1, 8, 8), classes=10, samples=2000, test_samples=500, noise=1.0)
    train, labels = data.train.inputs.reshape(2000, -1), data.train.labels
    means = np.stack([train[labels == c].mean(axis=0) for c in range(10)])
    test = data.test.inputs.reshape(500, 1, -1)
    guessed = ((test - means) ** 2).sum(axis=2).argmin(axis=1)
    assert (guessed == data.test.labels).mean() > 0.95
    together = np.concatenate([train, test[:, 0]])
    assert len(np.unique(together, axis=0)) == 2500


def test_a_billion_samples_cost_nothing_until_they_are_taken() -> None:
    """The last of 10⁹, and the whole as a data set with a fingerprint."""
    made = Synthetic((1, 4, 4), 3, 10**9)
    assert made.take(np.array([10**9 - 1]))[0].shape == (1, 1, 4, 4)
    data = Dataset("large", made, made, tuple("abc"))
    assert (
        data.fingerprint == Dataset("large", Synthetic((1, 4, 4), 3, 10**9), made, tuple("abc")).fingerprint
    )


@pytest.mark.parametrize(
    "other", [{"seed": 1}, {"noise": 2.0}, {"first": 5}, {"classes": 4}, {"samples": 99}, {"shape": (4, 1)}]
)
def test_what_it_is_made_from_is_its_fingerprint(other: dict[str, Any]) -> None:
    """Equal arguments, equal fingerprints; another argument, another one; and not that of the same arrays."""
    given: dict[str, Any] = {"shape": (1, 4), "classes": 3, "samples": 100}
    made = Synthetic(**given)
    assert made.fingerprint == Synthetic(**given).fingerprint != Synthetic(**given | other).fingerprint
    assert made.fingerprint != Split(made.inputs, made.labels).fingerprint


def test_no_samples_to_train_on_are_refused() -> None:
    """An empty training split is an error of the data; an empty test split is not."""
    assert len(load_dataset("synthetic", test_samples=0).test) == 0
    with pytest.raises(DataError, match="found 0 training samples, expected at least 1"):
        load_dataset("synthetic", samples=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shape": ()}, r"shape is \(\): it must be a tuple such as"),
        ({"shape": 8}, "shape is 8"),
        ({"shape": (3, 0)}, "an axis of shape is 0"),
        ({"classes": 0}, "classes is 0"),
        ({"samples": -1}, "samples is -1"),
        ({"noise": -0.1}, "noise is -0.1"),
        ({"test_samples": 1.5}, "test_samples is 1.5"),
        ({"seed": True}, "seed is True"),
    ],
)
def test_arguments_without_sense_are_refused(options: dict[str, Any], words: str) -> None:
    """With the name, what was found, and what is expected."""
    with pytest.raises(ConfigurationError, match=words):
        load_dataset("synthetic", **options)
