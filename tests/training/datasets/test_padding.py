"""Claims about padding: sequences of different length become samples of one, as PyTorch pads them"""

from typing import Any

import datasets as hf
import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

import d5ray as d5
from d5ray.errors import ConfigurationError, D5Error, DataError

RNG = np.random.default_rng(30)
LENGTHS = RNG.integers(1, 9, 20)
SEQUENCES = [RNG.integers(1, 50, length) for length in LENGTHS]
LONGEST = int(LENGTHS.max())
ROWS = [{"ids": ids, "labels": ids % 3} for ids in SEQUENCES]


def test_sequences_are_those_that_pytorch_pads() -> None:
    """To the longest, labels with −100 which the loss ignores, and a mask of what was there."""
    made = d5.from_torch(d5.datasets.Padded(ROWS, {"ids": 0, "labels": -100}), classes=3)
    inputs, labels = made.train.take(np.arange(20))
    expected = pad_sequence([torch.from_numpy(ids) for ids in SEQUENCES], batch_first=True)
    assert np.array_equal(inputs["ids"], expected) and inputs["ids"].shape == (20, LONGEST)
    assert np.array_equal(inputs["attention_mask"], expected > 0)
    assert np.array_equal(labels, np.where(expected > 0, expected % 3, -100))


def test_padded_rows_of_hugging_face_train_with_a_masked_loss() -> None:
    """One column as inputs, whose labels that are padding do not count."""
    rows = hf.Dataset.from_dict({"ids": [ids.tolist() for ids in SEQUENCES]})
    rows = rows.map(lambda row: {"labels": [each % 3 for each in row["ids"]]})
    padded = d5.datasets.Padded(rows, {"ids": 0, "labels": -100}, 8, mask=None)
    made = d5.from_torch(padded, classes=50)
    assert made.sample_shape == (8,)
    experiment = d5.Experiment(
        "transformer", made, d5.optimizers.SGD(0.1), loss=d5.operators.MaskedCrossEntropyLoss(), batch_size=5,
        model_kwargs={"width": 8, "heads": 2, "depth": 1, "context": 8},
    )  # fmt: skip
    with d5.simulate(experiment) as group:
        group.train(steps=3)


def test_longer_ones_are_cut_where_that_is_said() -> None:
    rows = [{"ids": np.arange(5), "labels": 1}]
    cut = d5.datasets.Padded(rows, {"ids": 0}, 3, cut=True)
    assert cut[0]["ids"].tolist() == [0, 1, 2] and cut[0]["attention_mask"].tolist() == [1, 1, 1]
    with pytest.raises(DataError, match="sample 0 has sequences of 5, expected 3 at most"):
        d5.from_torch(d5.datasets.Padded(rows, {"ids": 0}, 3), classes=2)


def test_fingerprints_differ_by_how_is_padded() -> None:
    padded = d5.datasets.Padded
    made = [padded(ROWS, {"ids": 0, "labels": 0}, length) for length in (9, 9, 10)]
    first, again, other = (d5.from_torch(each, classes=3).fingerprint for each in made)
    assert first == again != other


@pytest.mark.parametrize(
    ("items", "options", "kind", "message"),
    [
        ([{"ids": [1]}], {"values": {"id": 0}}, DataError, "sample 0 has no 'id': did you mean 'ids'"),
        ([{"ids": [1], "y": [1, 2]}], {"values": {"ids": 0, "y": 0}}, DataError, "sample 0 has sequences of"),
        ([{"ids": 3}], {"values": {"ids": 0}}, DataError, "ids of sample 0: found one number"),
        ([[1, 2]], {"values": {"ids": 0}}, DataError, "sample 0: found list, expected a dictionary"),
        (5, {"values": {"ids": 0}}, ConfigurationError, "items is 5"),
        (ROWS, {"values": {}}, ConfigurationError, "it must say what each sequence is padded with"),
        (ROWS, {"values": {"ids": "a"}}, ConfigurationError, "it must say what each sequence is padded with"),
        (ROWS, {"values": {"ids": 0}, "length": 0}, ConfigurationError, "length is 0"),
        (ROWS, {"values": {"ids": 0}, "mask": 1}, ConfigurationError, "mask is 1"),
    ],
)
def test_what_cannot_be_padded_is_refused(
    items: Any, options: dict[str, Any], kind: type[D5Error], message: str
) -> None:
    with pytest.raises(kind, match=message):
        d5.datasets.Padded(items, **options)
