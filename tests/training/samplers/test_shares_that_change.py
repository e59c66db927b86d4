"""Claims about agents that become fewer or more in the midst of an epoch: every sample once, exact means"""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import d5ray as d5
from d5ray.training.batches.epochs import START, BatchSize, Epochs, Position
from d5ray.training.samplers.shards import Draw, Shards

SAMPLERS = [
    d5.samplers.ShuffleSampler(),
    d5.samplers.OrderedSampler(),
    d5.samplers.BlockShuffleSampler(block=4, window=3),
    d5.samplers.BucketSampler([index % 7 + 1 for index in range(101)], 3),
]
SIZES: list[BatchSize] = [
    3,
    d5.schedules.Piecewise(2, {1: 5}),
    d5.schedules.Piecewise(4, {7: 1, 15: 6}, unit="step"),
]
CHANGES = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 9)), min_size=1, max_size=6)


def changed(shards: Shards, agents: int, step: int, *, keeps_global: bool) -> Shards:
    """The shards when that many agents go on from a step."""
    among = shards.planned if keeps_global else agents
    return replace(shards, agents=among, pieces=agents, since=shards.epochs.at(step))


def steps_of(shards: Shards, step: int) -> list[list[Draw]]:
    """All agents' draws of each step, from this step to the end of the epoch after its own."""
    since = shards.epochs.position(step)
    end = shards.epochs.begin(since[0] + 2)
    each = [
        list(islice(shards.draws(piece, since[0], since[1]), end - step))
        for piece in range(shards.pieces or shards.agents)
    ]
    return [list(draws) for draws in zip(*each, strict=True)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda each: type(each).__name__)
@settings(deadline=None)  # a busy machine is slow
@given(changes=CHANGES, keeps_global=st.booleans(), planned=st.integers(1, 6))
def test_every_sample_comes_once_an_epoch_whoever_was_there(
    sampler: d5.Sampler, size: BatchSize, changes: list[tuple[int, int]], keeps_global: bool, planned: int
) -> None:
    """Some agents do some steps, then others go on; joined, the draws of an epoch are all samples, once."""
    first = Shards(101, planned, size, sampler, seed=3, planned=planned)
    shards, step, found = first, 0, dict[int, list[int]]()
    values = np.random.default_rng(0).standard_normal(101)
    for agents, steps in [*changes, (changes[-1][0], 10**6)]:
        shards = changed(shards, agents, step, keeps_global=keeps_global)
        for draws in steps_of(shards, step)[:steps]:
            joined = np.concatenate([draw.indices for draw in draws])
            found.setdefault(draws[0].epoch, []).extend(joined)
            means = [draw.weight * values[draw.indices].mean() if len(draw.indices) else 0 for draw in draws]
            np.testing.assert_allclose(np.mean(means), values[joined].mean(), rtol=0, atol=1e-12)
            step += 1
    for indices in found.values():
        assert sorted(indices) == list(range(101))


@pytest.mark.parametrize("size", SIZES, ids=str)
@settings(deadline=None)  # a busy machine is slow
@given(changes=CHANGES, epochs=st.integers(1, 4))
def test_epochs_end_where_their_samples_do(
    size: BatchSize, changes: list[tuple[int, int]], epochs: int
) -> None:
    """After any changes: begins, positions and places agree with counting the samples of every step."""
    known, step = Epochs(53, 3, size), 0
    for agents, steps in changes:
        step += steps
        known = Epochs(53, agents, size, known.at(step))
    place = known.since
    samples, at = place.samples, step
    for epoch in range(place.epoch, place.epoch + epochs):
        for start, taken in known.cuts(epoch):
            assert start == samples
            assert known.position(at) == (epoch, at - known.begin(epoch))
            assert known.at(at) == Position(epoch, start, at, known.begin(epoch))
            assert known.reached(Position(epoch, start)) == at
            assert known.reached(Position(epoch, start + 1)) == at + 1
            later = known.at(known.after(at, 1))
            assert known.since == START or (epoch + 1, start) <= (later.epoch, later.samples)
            assert known.since == START or known.at(known.after(at, 1) - 1).samples < start or not start
            samples, at = samples + taken, at + 1
        assert samples == 53 and known.begin(epoch + 1) == at
        samples = 0
    assert known.reached(START) == step


def test_samples_that_are_left_out_do_not_count_for_the_mean() -> None:
    """Of three pieces one is nobody's: the mean over the two others is that of their samples, also of 5."""
    shards = Shards(11, 3, 2, d5.samplers.OrderedSampler(), seed=0, planned=3, pieces=3, taken=(0, 2))
    values = np.random.default_rng(1).standard_normal(11)
    own = {piece: list(shards.epoch(0, piece)) for piece in (0, 2)}
    for first, second in zip(own[0], own[2], strict=True):
        joined = np.concatenate([first.indices, second.indices])
        mean = sum(d.weight * values[d.indices].mean() for d in (first, second) if len(d.indices)) / 2
        np.testing.assert_allclose(mean, values[joined].mean())
    assert shards.relative_batch == 2 / 3


@pytest.mark.parametrize(
    ("agents", "pieces", "taken", "expected"),
    [(4, 4, (), 1.0), (2, 2, (), 0.5), (4, 2, (), 1.0), (4, 4, (0, 3), 0.5), (6, 6, (), 1.5)],
)
def test_the_batch_relative_to_the_planned_one(
    agents: int, pieces: int, taken: tuple[int, ...], expected: float
) -> None:
    """Of four agents: all, two with their own batches, two with the global one, two of four pieces, six."""
    shards = Shards(100, agents, 2, d5.samplers.OrderedSampler(), 0, planned=4, pieces=pieces, taken=taken)
    assert shards.relative_batch == expected
