"""Claims about samplers and shards: every epoch exactly once, for every remainder, with the right weights."""

import itertools
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import digest
from d5ray.training.samplers.bucket import BucketSampler
from d5ray.training.samplers.choice import ChoiceSampler
from d5ray.training.samplers.sampler import (
    BlockShuffleSampler,
    Indices,
    OrderedSampler,
    Sampler,
    ShuffleSampler,
)
from d5ray.training.samplers.shards import Draw, Shards

SAMPLERS: tuple[Sampler, ...] = (
    OrderedSampler(),
    ShuffleSampler(),
    BlockShuffleSampler(block=7, window=3),
    ChoiceSampler(replacement=False),
)

sizes = st.tuples(st.integers(1, 400), st.integers(1, 8), st.integers(1, 70))


def epoch_of(shards: Shards, epoch: int) -> list[list[Draw]]:
    """The draws of one epoch: for every step, those of every rank."""
    ranks = [list(shards.epoch(epoch, rank)) for rank in range(shards.agents)]
    assert len({len(draws) for draws in ranks}) == 1, "ranks have different numbers of steps"
    return [list(step) for step in zip(*ranks, strict=True)]


def check_epoch(samples: int, agents: int, batch_size: int, sampler: Sampler, epoch: int) -> None:
    """Everything that is claimed of one epoch, against plain counting and a float64 mean."""
    shards = Shards(samples, agents, batch_size, sampler, seed=5)
    steps = epoch_of(shards, epoch)
    assert len(steps) == shards.steps_per_epoch == -(-samples // (agents * batch_size))
    everything = np.concatenate([draw.indices for step in steps for draw in step])
    assert sorted(everything.tolist()) == list(range(samples))  # all of them, nothing twice
    np.testing.assert_array_equal(everything, sampler.order(samples, epoch=epoch, seed=5))
    value = np.random.default_rng(1).standard_normal(samples)  # stands for the gradient of each sample
    for number, step in enumerate(steps):
        counts = [len(draw.indices) for draw in step]
        last = number == len(steps) - 1
        assert max(counts) - min(counts) <= 1
        assert last or counts == [batch_size] * agents
        assert {(draw.epoch, draw.ends_epoch) for draw in step} == {(epoch, last)}
        weights = np.array([draw.weight for draw in step])
        assert weights.sum() / agents == pytest.approx(1.0, abs=1e-14)
        if len(set(counts)) == 1:
            assert weights.tolist() == [1.0] * agents  # exactly: nothing is multiplied in a full step
        means = np.array([value[draw.indices].mean() if len(draw.indices) else 0.0 for draw in step])
        expected = value[np.concatenate([draw.indices for draw in step])].mean()
        assert (weights * means).mean() == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
@given(sizes, st.integers(0, 1000))
@example((1, 8, 32), 0)  # the last step's pieces: 1, 0, 0, 0, 0, 0, 0, 0
@example((7, 8, 1), 1)  # a remainder smaller than the number of agents
@example((8, 8, 1), 2)  # exactly one step of one sample each
@example((101, 3, 33), 0)  # 1, 1, 0
@example((64, 2, 32), 1)  # nothing remains
@example((5, 2, 100), 2)  # one step, smaller than a batch: 3, 2
@example((1438, 7, 13), 0)  # the digits
def test_an_epoch_is_the_data_set_in_fair_pieces(
    sampler: Sampler, size: tuple[int, int, int], epoch: int
) -> None:
    """All samples once, in the order of the sampler; equal steps; fair pieces; weights that give the mean."""
    check_epoch(*size, sampler, epoch)


def test_the_ordered_sampler_is_the_identity() -> None:
    """0, 1, 2, … in every epoch, whatever the seed."""
    for epoch, seed in ((0, 0), (3, 7)):
        assert OrderedSampler().order(50, epoch=epoch, seed=seed).tolist() == list(range(50))


@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (1, 2), (2, 1)])
def test_the_shuffle_sampler_is_the_documented_generator(seed: int, epoch: int) -> None:
    """Numbers to hold on to, by (seed, epoch) alone: another generator would change every published run."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
    found = ShuffleSampler().order(100, epoch=epoch, seed=seed)
    np.testing.assert_array_equal(found, rng.permutation(100))
    assert found.dtype == np.int64


def test_samplers_are_equal_by_what_they_are() -> None:
    """Equal samplers compare and hash equal, different ones do not; they print as they are written."""
    assert ShuffleSampler() == ShuffleSampler() != OrderedSampler()
    assert len({ShuffleSampler(), ShuffleSampler(), OrderedSampler()}) == 2
    assert repr(ShuffleSampler()) == "ShuffleSampler()"


def test_no_samples_are_refused() -> None:
    """A split without samples has no epoch."""
    with pytest.raises(ConfigurationError, match=r"the training split is empty.*at least one sample"):
        Shards(0, 2, 32, OrderedSampler(), 0)


# -- beginning in the middle -----------------------------------------------------------------------------


def test_beginning_in_the_middle_draws_no_epoch_that_lies_before() -> None:
    """A sampler that counts is asked for the one epoch in which the millionth step lies, and for no other."""

    class Counting(Sampler):
        asked: ClassVar[list[int]] = []

        def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
            self.asked.append(epoch)
            return np.arange(samples)

    draw = next(Shards(100, 2, 5, Counting(), seed=1).draws(1, first_step=1_000_003))
    assert (draw.epoch, draw.indices.tolist()) == (100_000, [35, 36, 37, 38, 39])
    assert set(Counting.asked) == {100_000}


# -- by length -------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=300),
    st.integers(1, 40),
    st.integers(1, 16),
    st.integers(0, 5),
)
def test_steps_of_the_bucket_sampler_are_of_one_bucket(
    lengths: list[int], buckets: int, step: int, epoch: int
) -> None:
    """As many full steps are of one bucket as can be, the others of buckets next to each other."""
    sampler = BucketSampler(lengths, buckets).in_steps(step)
    order = sampler.order(len(lengths), epoch=epoch, seed=2)
    assert sorted(order.tolist()) == list(range(len(lengths)))
    width = Fraction(max(lengths) - min(lengths) + 1, buckets)  # of each bucket
    bucket = np.array([(length - min(lengths)) // width for length in lengths])
    np.testing.assert_array_equal(sampler.bucket_of(np.array(lengths)), bucket)
    full = bucket[order[: len(order) // step * step]].reshape(-1, step)
    pure = (full == full[:, :1]).all(axis=1).sum()
    assert pure >= sum(count // step for count in np.bincount(bucket))
    mixed = full[(full != full[:, :1]).any(axis=1)]
    between = sorted((low, high) for low, high in zip(mixed.min(axis=1), mixed.max(axis=1), strict=True))
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(between))


def test_the_bucket_sampler_pads_far_less_than_a_shuffle() -> None:
    """Lengths of exponential law, 16 a step: the padding to each step's longest is under a fifth."""
    lengths = np.random.default_rng(3).exponential(60, 2000).astype(np.int64) + 1

    def padding(sampler: Sampler) -> int:
        draws = Shards(2000, 2, 8, sampler, seed=1)
        steps = zip(draws.epoch(0, 0), draws.epoch(0, 1), strict=True)
        each = [lengths[np.concatenate([draw.indices for draw in step])] for step in steps]
        return sum(int((own.max() - own).sum()) for own in each)

    assert padding(BucketSampler(lengths, 30)) < padding(ShuffleSampler()) / 5


def test_steps_of_the_bucket_sampler_come_in_no_order_of_length() -> None:
    """Short steps and long ones are mixed: their lengths have no rank correlation of note with time."""
    lengths = np.arange(1600)
    order = BucketSampler(lengths, 20).in_steps(16).order(1600, epoch=0, seed=1)
    means = lengths[order].reshape(-1, 16).mean(axis=1)
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < 0.3


def test_too_long_samples_are_left_out_and_the_epoch_is_shorter() -> None:
    """max_length=3 leaves 6 of 10, shared exactly by the agents; every epoch has the same six."""
    shards = Shards(10, 2, 2, BucketSampler([1, 9, 2, 3, 8, 1, 4, 2, 9, 3], 2, max_length=3), seed=1)
    assert (shards.length, shards.steps_per_epoch) == (6, 2)
    for epoch in range(3):
        steps = epoch_of(shards, epoch)
        assert sorted(i for step in steps for draw in step for i in draw.indices) == [0, 2, 3, 5, 7, 9]
        assert [draw.ends_epoch for step in steps for draw in step] == [False, False, True, True]


# -- by chance -------------------------------------------------------------------------------------------


def test_an_epoch_may_be_longer_than_the_data() -> None:
    """25 draws of 10 samples with replacement by 3 agents: all 25, in fair pieces, the last of one sample."""
    shards = Shards(10, 3, 2, ChoiceSampler(samples=25), seed=4)
    steps = epoch_of(shards, 2)
    assert [[len(draw.indices) for draw in step] for step in steps] == [[2, 2, 2]] * 4 + [[1, 0, 0]]
    drawn = np.concatenate([draw.indices for step in steps for draw in step])
    np.testing.assert_array_equal(drawn, ChoiceSampler(samples=25).order(10, epoch=2, seed=4))


@pytest.mark.parametrize("weighted", [False, True])
def test_draws_with_replacement_follow_the_weights(weighted: bool) -> None:
    """χ² of 60,000 draws against the weights within 5 σ; what has no weight is never drawn."""
    weights = np.array([0.0, 1, 2, 3, 0, 4]) if weighted else np.ones(6)
    sampler = ChoiceSampler(samples=60_000, weights=weights if weighted else None)
    counts = np.bincount(sampler.order(6, epoch=1, seed=8), minlength=6)
    assert (counts[weights == 0] == 0).all()
    counts, expected = counts[weights > 0], (60_000 * weights / weights.sum())[weights > 0]
    degrees = len(expected) - 1
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_squared - degrees) < 5 * np.sqrt(2 * degrees)


def test_weighted_draws_without_replacement_are_successive_draws() -> None:
    """Every ordered pair of 4 samples has its probability w_i / Σ · w_j / (Σ − w_i): χ² within 5 σ."""
    weights, epochs = np.array([1.0, 2, 3, 4]), 6000
    sampler = ChoiceSampler(replacement=False, samples=2, weights=weights)
    pairs = np.stack([sampler.order(4, epoch=epoch, seed=1) for epoch in range(epochs)])
    chi_squared = 0.0
    for i, j in itertools.permutations(range(4), 2):
        expected = epochs * weights[i] / 10 * weights[j] / (10 - weights[i])
        chi_squared += (((pairs == (i, j)).all(axis=1).sum() - expected) ** 2) / expected
    assert abs(chi_squared - 11) < 5 * np.sqrt(2 * 11)


@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 9))
def test_without_replacement_none_comes_twice(samples: int, wanted: int, epoch: int) -> None:
    """As many as are asked for, all different, as a shuffled epoch begins; more than there are is refused."""
    sampler = ChoiceSampler(replacement=False, samples=wanted)
    if wanted > samples:
        with pytest.raises(ConfigurationError, match=f"asks for {wanted} samples .* there are {samples}: "):
            Shards(samples, 2, 3, sampler, seed=1)
        return
    drawn = sampler.order(samples, epoch=epoch, seed=1).tolist()
    assert len(set(drawn)) == wanted
    assert drawn == ShuffleSampler().order(samples, epoch=epoch, seed=1)[:wanted].tolist()


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 6), st.integers(0, 9))
def test_the_block_shuffle_uses_few_blocks_at_a_time(
    samples: int, block: int, window: int, epoch: int
) -> None:
    """Every sample once; no window of the order is of more than that many blocks and one."""
    order = BlockShuffleSampler(block, window).order(samples, epoch=epoch, seed=5)
    assert sorted(order.tolist()) == list(range(samples))
    for begin in range(0, samples, block * window):
        used = len(set((order[begin : begin + block * window] // block).tolist()))
        assert used <= window + 1


# -- what is refused -------------------------------------------------------------------------------------


def wrong(**given: Any) -> dict[str, Any]:
    """Arguments of types that mypy would refuse."""
    return given


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ChoiceSampler(samples=0), "samples is 0: it must be an integer of at least 1"),
        (lambda: ChoiceSampler(**wrong(replacement=1)), "replacement is 1: it must be True or False"),
        (lambda: ChoiceSampler(weights=[1, -1]), r"weights\[1\] is -1.0: it must be a finite number"),
        (lambda: ChoiceSampler(weights=[1, np.nan]), r"weights\[1\] is nan"),
        (lambda: ChoiceSampler(weights=[0, 0]), "the sum of the weights is 0.0"),
        (
            lambda: ChoiceSampler(**wrong(weights=[[1]])),
            r"weights have the shape \(1, 1\): they must be \(N,\)",
        ),
        (lambda: ChoiceSampler(**wrong(weights="ab")), "weights are no numbers"),
        (lambda: BucketSampler([]), "lengths have the shape"),
        (lambda: BucketSampler(**wrong(lengths=[1.5])), "the type float64: they must be integers"),
        (lambda: BucketSampler([3, -2]), r"lengths\[1\] is -2: it must be 0 or more"),
        (lambda: BucketSampler([3], buckets=0), "buckets is 0"),
        (lambda: BlockShuffleSampler(block=0), "block is 0"),
    ],
)
def test_arguments_without_sense_are_refused(make: Callable[[], Sampler], words: str) -> None:
    """With the name, what was found, and what is expected."""
    with pytest.raises(ConfigurationError, match=words):
        make()


@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (ChoiceSampler(weights=[1, 1]), "has 2 weights, but the training split has 3 samples"),
        (ChoiceSampler(False, 3, weights=[1, 0, 1]), "there are 2 with a weight above 0: ask for fewer"),
        (ChoiceSampler(False, 4), "asks for 4 samples an epoch, but there are 3: ask for fewer, or set repl"),
        (BucketSampler([1, 2]), "has 2 lengths, but the training split has 3 samples: give each"),
        (BucketSampler([5, 6, 7], max_length=4), "leaves out every sample: the shortest has length 5"),
    ],
)
def test_a_sampler_that_does_not_fit_the_split_is_refused(sampler: Sampler, words: str) -> None:
    """Over three samples."""
    with pytest.raises(ConfigurationError, match=words):
        Shards(3, 1, 1, sampler, 0)


@pytest.mark.parametrize(
    ("given_order", "words"),
    [
        (
            np.array([0, 1, 3]),
            "asks for sample 3 in epoch 0, but the split has 3: its indices must be 0 to 2",
        ),
        (np.array([0, -1, 2]), "asks for sample -1"),
        (np.array([0, 1]), "gave 2 indices for epoch 0, but says that an epoch has 3"),
        ([0, 1, 2], "gave list: an order must be a NumPy array"),
        (np.zeros((3, 1)), r"gave \(3, 1\) of float64"),
    ],
)
def test_an_order_that_is_none_is_refused(given_order: Any, words: str) -> None:
    """A sampler of the user's own gets a sentence, not an IndexError somewhere in the step."""

    class Wrong(Sampler):
        def order(self, samples: int, *, epoch: int, seed: int) -> Indices:
            return given_order  # type: ignore[no-any-return]

    with pytest.raises(ConfigurationError, match=words):
        next(Shards(3, 1, 1, Wrong(), 0).draws(0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChoiceSampler(True, 5, [1.0, 2.0]),
        lambda: ChoiceSampler(),
        lambda: BucketSampler([3, 1, 2], 2),
        lambda: BucketSampler([3, 1, 2], 3),
        lambda: BucketSampler([3, 1, 3], 2),
        lambda: BlockShuffleSampler(2, 3),
    ],
)
def test_samplers_with_arguments_are_equal_by_them(make: Callable[[], Sampler]) -> None:
    """Made twice, or pickled: equal, of one hash and one description; no other of these is."""
    one, other = make(), pickle.loads(pickle.dumps(make()))
    assert one == other and hash(one) == hash(other) and digest(one) == digest(other)
    others = [
        ChoiceSampler(True, 5, [1.0, 2.0]), ChoiceSampler(), BucketSampler([3, 1, 2], 2),
        BucketSampler([3, 1, 2], 3), BucketSampler([3, 1, 3], 2), BlockShuffleSampler(2, 3),
    ]  # fmt: skip
    assert [one == each for each in others].count(True) == 1
    assert [digest(one) == digest(each) for each in others].count(True) == 1
