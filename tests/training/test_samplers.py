"""Claims about samplers and shards: every epoch exactly once, for every remainder, with the right weights."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.training.samplers import Draw, OrderedSampler, Sampler, Shards, ShuffleSampler

SAMPLERS: tuple[Sampler, ...] = (OrderedSampler(), ShuffleSampler())

# (samples, agents, batch size) where something could go wrong; the last step's pieces in the comment
EDGES = [
    (1, 1, 1),
    (1, 8, 32),  # 1, 0, 0, 0, 0, 0, 0, 0
    (7, 8, 1),  # a remainder smaller than the number of agents
    (8, 8, 1),  # exactly one step of one sample each
    (9, 8, 1),  # 1, 0, … in a second step
    (100, 3, 33),  # 1, 0, 0
    (101, 3, 33),  # 1, 1, 0
    (64, 2, 32),  # nothing remains
    (65, 2, 32),  # 1, 0
    (5, 2, 100),  # one step, smaller than a batch: 3, 2
    (1438, 2, 32),  # the digits: 15, 15
    (1438, 4, 32),
    (1438, 7, 13),
]
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
@pytest.mark.parametrize(("samples", "agents", "batch_size"), EDGES)
def test_an_epoch_is_the_data_set_in_fair_pieces(
    samples: int, agents: int, batch_size: int, sampler: Sampler
) -> None:
    """All samples once, in the order of the sampler; equal steps; fair pieces; weights that give the mean."""
    for epoch in range(3):
        check_epoch(samples, agents, batch_size, sampler, epoch)


@given(sizes, st.integers(0, 1000), st.sampled_from(SAMPLERS))
def test_an_epoch_is_the_data_set_for_any_sizes(
    size: tuple[int, int, int], epoch: int, sampler: Sampler
) -> None:
    """The same for any number of samples, 1 to 8 agents, any batch size, any epoch."""
    check_epoch(*size, sampler, epoch)


@given(sizes)
def test_draws_go_through_the_epochs_without_end(size: tuple[int, int, int]) -> None:
    """`draws` is epoch 0, 1, 2, … one after the other; or begins at the epoch that it is asked for."""
    shards = Shards(*size, ShuffleSampler(), seed=9)
    rank = size[1] - 1
    steps = shards.steps_per_epoch
    going = list(islice(shards.draws(rank), 3 * steps))
    expected = [draw for epoch in range(3) for draw in shards.epoch(epoch, rank)]
    for found, one in zip(going, expected, strict=True):
        np.testing.assert_array_equal(found.indices, one.indices)
        assert (found.epoch, found.weight, found.ends_epoch) == (one.epoch, one.weight, one.ends_epoch)
    assert next(shards.draws(rank, first_epoch=7)).epoch == 7


def test_the_ordered_sampler_is_the_identity() -> None:
    """0, 1, 2, … in every epoch, whatever the seed."""
    for epoch, seed in ((0, 0), (3, 7)):
        assert OrderedSampler().order(50, epoch=epoch, seed=seed).tolist() == list(range(50))


def test_the_shuffle_sampler_repeats_by_seed_and_epoch() -> None:
    """Equal (seed, epoch) give equal orders; another seed or epoch another one; (1, 2) is not (2, 1)."""

    def order(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(ShuffleSampler().order(100, epoch=epoch, seed=seed).tolist())

    drawn = {(seed, epoch): order(seed, epoch) for seed in range(5) for epoch in range(5)}
    assert len(set(drawn.values())) == 25
    assert all(order(*key) == value for key, value in drawn.items())


def test_the_shuffle_sampler_is_the_documented_generator() -> None:
    """Numbers to hold on to: a change of generator would change every published run."""
    expected = np.random.Generator(np.random.PCG64(np.random.SeedSequence([1, 2]))).permutation(10)
    found = ShuffleSampler().order(10, epoch=2, seed=1)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.int64


def test_the_shuffle_sampler_is_fair() -> None:
    """Over 4,000 epochs every sample stands in every position equally often: χ² within 5 σ of its mean."""
    samples, epochs = 8, 4000
    counts = np.zeros((samples, samples))
    for epoch in range(epochs):
        counts[np.arange(samples), ShuffleSampler().order(samples, epoch=epoch, seed=3)] += 1
    expected = epochs / samples
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    degrees = (samples - 1) ** 2
    assert abs(chi_squared - degrees) < 5 * np.sqrt(2 * degrees)


def test_samplers_are_equal_by_what_they_are() -> None:
    """Equal samplers compare and hash equal, different ones do not; they print as they are written."""
    assert ShuffleSampler() == ShuffleSampler() != OrderedSampler()
    assert len({ShuffleSampler(), ShuffleSampler(), OrderedSampler()}) == 2
    assert repr(ShuffleSampler()) == "ShuffleSampler()"


def test_no_samples_are_refused() -> None:
    """A split without samples has no epoch."""
    with pytest.raises(ConfigurationError, match=r"the training split is empty.*at least one sample"):
        Shards(0, 2, 32, OrderedSampler(), 0)
