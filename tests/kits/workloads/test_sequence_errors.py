"""Claims about sequences that are written down: the likeliest path, and how far it is from the truth"""

import numpy as np
import pytest

import d5ray as d5
from d5ray.kits.workloads.datasets.keyword_sequences import load_keyword_sequences
from d5ray.kits.workloads.datasets.keywords import WORDS
from d5ray.kits.workloads.events.sequence_errors import best_path, edits, error_rate


def recursive(found: list[int], true: list[int]) -> int:
    """Levenshtein's distance as it is defined."""
    if not found or not true:
        return len(found) + len(true)
    if found[-1] == true[-1]:
        return recursive(found[:-1], true[:-1])
    options = (found[:-1], true), (found, true[:-1]), (found[:-1], true[:-1])
    return 1 + min(recursive(*each) for each in options)


def test_edits_are_the_fewest() -> None:
    rng = np.random.default_rng(7)
    for _ in range(200):
        found, true = (rng.integers(0, 3, rng.integers(0, 6)).tolist() for _ in range(2))
        assert edits(found, true) == recursive(found, true) <= max(len(found), len(true))
    assert edits(list(map(ord, "kitten")), list(map(ord, "sitting"))) == 3


def test_the_rate_is_over_the_labels_that_are_true() -> None:
    """A long sequence counts for more than a short one; insertions can make it more than 1."""
    assert error_rate([[1, 2, 3, 4], [1]], [[1, 2, 3, 4], [2]]) == 1 / 5
    assert error_rate([[1, 1, 1]], [[1]]) == 2
    assert error_rate([], []) is None


def test_a_path_is_read_without_repetitions_then_without_blanks() -> None:
    def read(*path: int) -> list[int]:
        return best_path(np.eye(4)[list(path)])

    assert read(0, 0, 3, 3, 1, 1) == [0, 1]
    assert read(2, 3, 2) == [2, 2]
    assert read(3, 3, 3) == []


def test_words_are_in_their_order_and_silence_is_not_told() -> None:
    """One to three in three seconds; every word and every number of them comes up; seeds repeat."""
    made, again, other = (
        load_keyword_sequences(samples=60, test_samples=10, seed=seed) for seed in (1, 1, 2)
    )
    labels = made.train.labels
    assert made.train.inputs.shape == (60, 1, 40, 149) and made.classes == tuple(WORDS)
    assert set((labels >= 0).sum(axis=1)) == {1, 2, 3} and set(labels[labels >= 0]) == set(range(10))
    assert all((row[np.argmax(row < 0) :] < 0).all() for row in labels if (row < 0).any())
    assert made.fingerprint == again.fingerprint != other.fingerprint
    clean = load_keyword_sequences(samples=20, test_samples=1, noise=0.0).train
    loud = clean.inputs[:, 0].max(axis=1)[:, :147].reshape(20, 3, 49).max(axis=2) > -10  # silence: -13.8
    assert loud.sum(axis=1).tolist() == (clean.labels >= 0).sum(axis=1).tolist()


def test_it_is_for_ctc_alone() -> None:
    with pytest.raises(d5.D5Error, match=r"set loss=d5.operators.CTCLoss\(\)"):
        d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1), events=d5.events.SequenceErrors())
