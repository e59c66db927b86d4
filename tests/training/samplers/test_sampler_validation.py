"""Claims about the checks of samplers: good ones pass, every defect is named; labels are counted"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.training.samplers.bucket import BucketSampler
from d5ray.training.samplers.choice import ChoiceSampler
from d5ray.training.samplers.sampler import (
    BlockShuffleSampler,
    Indices,
    OrderedSampler,
    Sampler,
    ShuffleSampler,
    generator,
)
from d5ray.training.samplers.shards import Shards
from d5ray.training.samplers.validation import check_sampler, label_bias

GOOD: list[Sampler] = [
    OrderedSampler(),
    ShuffleSampler(),
    BlockShuffleSampler(block=8, window=2),
    ChoiceSampler(),
    ChoiceSampler(samples=250),
    ChoiceSampler(replacement=False, samples=40),
    ChoiceSampler(weights=np.arange(101.0)),
    BucketSampler(np.arange(101) % 13),
    BucketSampler(np.arange(101) % 13, max_length=6),
]


class Broken(Sampler):
    """A shuffle that something is done to, by the order and how often that was done."""

    def __init__(self, spoil: Callable[[Indices, int], Indices]) -> None:
        self.spoil, self.times = spoil, 0

    def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
        self.times += 1
        return self.spoil(generator(seed, epoch).permutation(samples).astype(np.int64), self.times)


@pytest.mark.parametrize("sampler", GOOD, ids=repr)
@pytest.mark.parametrize(("agents", "batch_size"), [(1, 101), (3, 7), (8, 32)])
def test_samplers_of_d5ray_pass(sampler: Sampler, agents: int, batch_size: int) -> None:
    """All of them, over 101 samples, for one agent and several, full batches and remainders."""
    assert check_sampler(sampler, 101, agents=agents, batch_size=batch_size) == ()


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (
            Broken(lambda order, _: np.where(order == 7, 3, order)),
            ["epoch 0 has sample 3 2 times", "leaves out sample 7, and 1 in all"],
        ),
        (Broken(lambda order, _: order + 1), ["asks for sample 101 in epoch 0, but the split has 101"]),
        (
            Broken(lambda order, _: order[1:]),
            ["gave 100 indices for epoch 0, but says that an epoch has 101"],
        ),
        (Broken(np.roll), ["epoch 0, drawn twice, came in two orders"]),
        (
            Broken(lambda order, _: np.arange(len(order))[::-1].copy()),
            ["epoch 1 has the order of epoch 0", "set varies = False"],
        ),
    ],
    ids=["twice", "outside", "shorter", "changing", "still"],
)
def test_what_is_wrong_is_said(sampler: Sampler, words: list[str]) -> None:
    """Each broken sampler gets the sentence that names its defect."""
    found = " | ".join(check_sampler(sampler, 101))
    for expected in words:
        assert expected in found


def test_what_fits_no_split_is_an_error() -> None:
    """More samples than there are, or than can be drawn, no sampler at all: nothing can be checked."""
    with pytest.raises(ConfigurationError, match="asks for 102"):
        check_sampler(ChoiceSampler(False, 102), 101)
    with pytest.raises(ConfigurationError, match="in 2 epochs are more than 100,000,000 draws: check fewer"):
        check_sampler(OrderedSampler(), 50_000_001, epochs=2)
    with pytest.raises(ConfigurationError, match="give a Sampler such as"):
        check_sampler(ShuffleSampler, 101)  # type: ignore[arg-type]


# -- labels ----------------------------------------------------------------------------------------------


def dataset(labels: Any, classes: int) -> d5.Dataset:
    found = np.asarray(labels, dtype=np.int64)
    inputs = np.zeros((len(found), 1), np.float32)
    return d5.Dataset(
        "d",
        d5.datasets.Split(inputs, found),
        d5.datasets.Split(inputs[:0], found[:0]),
        tuple("abcdef"[:classes]),
    )


def test_an_exact_epoch_has_no_bias() -> None:
    """One agent sees the data set's own counts, whatever their proportions."""
    data = dataset([0] * 50 + [1] * 7 + [2] * 3, 4)
    bias = label_bias(data, ShuffleSampler())
    assert bias.counts.tolist() == [[50, 7, 3, 0]]
    assert (bias.p_value, bias.chi_squared.tolist()) == (1.0, [0.0])


def test_shares_are_counted_as_they_are() -> None:
    """Ordered labels, two agents with batches of 5: each one's counts are those of its own indices."""
    labels = np.repeat([0, 1, 2], [10, 10, 3])
    bias = label_bias(dataset(labels, 3), OrderedSampler(), agents=2, batch_size=5)
    shards = Shards(23, 2, 5, OrderedSampler(), 0)
    for rank in range(2):
        own = np.concatenate([draw.indices for draw in shards.epoch(0, rank)])
        assert bias.counts[rank].tolist() == [int((labels[own] == c).sum()) for c in range(3)]
    np.testing.assert_allclose(bias.expected, np.array([[12], [11]]) * [10 / 23, 10 / 23, 3 / 23])


def test_a_weighted_choice_is_biased_and_a_plain_one_is_not() -> None:
    """χ² and p-value are SciPy's over the same counts; class 2 drawn ten times as often is found out."""
    labels = np.repeat([0, 1, 2], [600, 300, 100])
    data = dataset(labels, 3)
    fair = label_bias(data, ChoiceSampler(), seed=4)
    assert fair.p_value > 1e-3
    biased = label_bias(data, ChoiceSampler(weights=np.where(labels == 2, 10.0, 1.0)))
    assert biased.p_value < 1e-20
    for bias in (fair, biased):
        expected = stats.chisquare(bias.counts[0], bias.expected[0])
        assert bias.chi_squared[0] == pytest.approx(expected.statistic, rel=1e-12)
        assert bias.p_values[0] == pytest.approx(expected.pvalue, rel=1e-9)


@pytest.mark.parametrize("sampler", [ShuffleSampler(), ChoiceSampler()], ids=repr)
def test_p_values_of_fair_samplers_are_uniform(sampler: Sampler) -> None:
    """Over 400 epochs of one agent's third: Kolmogorov and Smirnov find no difference from uniform."""
    data = dataset(np.repeat([0, 1, 2, 3], [300, 300, 200, 100]), 4)
    found = [
        float(label_bias(data, sampler, epoch=epoch, agents=3, batch_size=10).p_values[1])
        for epoch in range(400)
    ]
    assert stats.kstest(found, "uniform").pvalue > 1e-3
    assert np.mean(np.array(found) < 0.05) < 0.09


def test_several_labels_a_sample_are_counted_one_by_one() -> None:
    """Labels (N, T): N·T of them."""
    tokens = np.array([[0, 1], [1, 1], [2, 0]])
    bias = label_bias(dataset(tokens, 3), ShuffleSampler())
    assert bias.counts.tolist() == [[2, 3, 1]]
