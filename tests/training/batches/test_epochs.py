"""Claims about epochs whose batch size changes: every sample once, found again at any step"""

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.recipes.engine.parsing import settings
from d5ray.training.batches.epochs import Epochs, size_at
from d5ray.training.samplers.shards import Shards
from tests.training.samplers.test_samplers import SAMPLERS

sizes = st.tuples(st.integers(1, 200), st.integers(1, 5))
schedules = st.builds(
    lambda start, values, unit: d5.schedules.Piecewise(start, values, unit=unit),
    st.integers(1, 40),
    st.dictionaries(st.integers(1, 12), st.floats(0.6, 60.0), min_size=1, max_size=4),
    st.sampled_from(["epoch", "step"]),
)
batch_sizes = st.one_of(st.integers(1, 40), schedules)


def walked(samples: int, agents: int, batch_size: Any, epochs: int) -> list[tuple[int, int, int]]:
    """(epoch, first sample, samples) of every step, one step after the other."""
    found: list[tuple[int, int, int]] = []
    for epoch in range(epochs):
        start = 0
        while start < samples:
            wanted = batch_size
            if isinstance(batch_size, d5.Schedule):
                time = epoch if batch_size.unit == "epoch" else len(found)
                wanted = round(batch_size.value(time))
            found.append((epoch, start, min(samples - start, agents * wanted)))
            start += found[-1][2]
    return found


@given(sizes, batch_sizes)
def test_epochs_are_cut_as_a_walk_through_them_cuts(size: tuple[int, int], batch_size: Any) -> None:
    """Ten epochs, step by step: where they begin, what each step takes, and where a step is found."""
    steps = walked(*size, batch_size, 10)
    epochs = Epochs(*size, batch_size)
    assert [(e, start, taken) for e in range(10) for start, taken in epochs.cuts(e)] == steps
    firsts = [number for number, step in enumerate(steps) if step[1] == 0]
    assert [epochs.begin(epoch) for epoch in range(10)] == firsts
    positions = [(epoch, number - firsts[epoch]) for number, (epoch, _, _) in enumerate(steps)]
    fresh = Epochs(*size, batch_size)  # which nobody asked for a beginning yet
    assert [fresh.position(number) for number in reversed(range(len(steps)))] == positions[::-1]
    assert epochs.begin(10) == len(steps)
    assert epochs.after(0, 10) == len(steps)
    assert epochs.after(epochs.begin(2), 3) == epochs.begin(5)


@given(sizes, batch_sizes, st.sampled_from(SAMPLERS), st.integers(0, 3), st.integers(0, 60))
def test_draws_go_on_from_any_step(
    size: tuple[int, int], batch_size: Any, sampler: d5.Sampler, first_epoch: int, step: int
) -> None:
    """From any step of any epoch on: the same indices, weights and ends as without the stop."""
    whole, fresh = (Shards(*size, batch_size, sampler, seed=3) for _ in range(2))
    rank = size[1] - 1
    expected = islice(whole.draws(rank, first_epoch), step, step + 8)
    for found, one in zip(islice(fresh.draws(rank, first_epoch, step), 8), expected, strict=True):
        np.testing.assert_array_equal(found.indices, one.indices)
        assert (found.epoch, found.weight, found.ends_epoch) == (one.epoch, one.weight, one.ends_epoch)


DIGITS = d5.datasets.load_dataset("digits")
SAMPLES = 512
DATA = d5.Dataset(
    "some digits",
    d5.datasets.Split(DIGITS.train.inputs[:SAMPLES], DIGITS.train.labels[:SAMPLES]),
    DIGITS.test,
    DIGITS.classes,
)


def trained(**values: Any) -> tuple[np.ndarray[Any, Any], list[float]]:
    """Parameters after the epochs, and the samples of every step of the first agent."""
    rule = values.pop("optimizer", d5.optimizers.Momentum(0.05, 0.9))
    experiment = d5.Experiment("mlp", DATA, rule, seed=2, evaluate=False, **values)
    with d5.simulate(experiment) as group:
        group.train(progress=False)
        rows = group.metrics().to_pandas()
        found = rows[(rows["metric"] == "samples") & (rows["rank"] == 0)].sort_values("step")["value"]
        return np.concatenate([t.ravel() for t in group.parameters().values()]), found.tolist()


def distance(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def test_agents_with_growing_batches_are_one_process_with_their_union() -> None:
    """Two agents, 24 samples, then 60, then 200, remainders in all, against one with twice as many."""
    two, samples = trained(agents=2, epochs=3, batch_size=d5.schedules.Piecewise(24, {1: 60, 2: 200}))
    one, _ = trained(agents=1, epochs=3, batch_size=d5.schedules.Piecewise(48, {1: 120, 2: 400}))
    assert distance(two, one) < 1e-5
    assert samples == [24.0] * 10 + [16.0] + [60.0] * 4 + [16.0] + [200.0, 56.0]


def test_growing_batch_does_the_same_in_several_steps() -> None:
    """Four steps of 16 from step 16 on, an update each, are one step of 64: `GrowingBatch` in less memory."""
    grown, _ = trained(agents=2, epochs=2, batch_size=16, distributed=d5.optimizers.GrowingBatch((16,), 4))
    scheduled, samples = trained(agents=2, epochs=2, batch_size=d5.schedules.Piecewise(16, {1: 64}))
    assert samples == [16.0] * 16 + [64.0] * 4
    assert distance(grown, scheduled) < 1e-5


def test_learning_rates_by_epoch_change_where_these_epochs_begin() -> None:
    """8 steps in the first epoch, 2 in the second, 2 in the third, where the rate is next to nothing."""
    batch = d5.schedules.Piecewise(32, {1: 128})
    rate = d5.schedules.Piecewise(0.1, {2: 1e-30})
    ended, samples = trained(
        agents=2,
        epochs=3,
        batch_size=batch,
        optimizer=d5.optimizers.Scheduled(d5.optimizers.SGD(0.1), learning_rate=rate),
    )
    before, _ = trained(agents=2, epochs=2, batch_size=batch, optimizer=d5.optimizers.SGD(0.1))
    assert len(samples) == 12
    assert distance(ended, before) < 1e-6


def test_a_batch_grows_inversely_to_the_rate_it_stands_for() -> None:
    """32 · 0.1 / η, at most 500; by its unit."""
    schedule = d5.schedules.InverseTo(
        32, d5.schedules.Piecewise(0.1, {4: 0.02, 8: 0.004}, unit="step"), limit=500
    )
    assert [size_at(schedule, 0, step) for step in (0, 3, 4, 7, 8, 99)] == [32, 32, 160, 160, 500, 500]
    assert schedule.unit == "step" and schedule.changes == (4, 8)
    assert (
        d5.schedules.InverseTo(32, d5.schedules.Cosine(0.1, 5), limit=4096).value(5) == 4096
    )  # where the rate is 0
    with pytest.raises(ConfigurationError, match=r"other is 0\.1: it must be a Schedule"):
        d5.schedules.InverseTo(32, 0.1)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="limit is 16: it must be a number of at least start"):
        d5.schedules.InverseTo(32, d5.schedules.Cosine(0.1, 5), limit=16)


def test_what_is_wrong_with_a_batch_size_is_said() -> None:
    """At the start before anything runs; later at the epoch at which it happens; and what never happens."""
    with pytest.raises(ConfigurationError, match=r"batch_size is 0 at epoch 0 by Piecewise.*at least 1"):
        d5.Experiment("mlp", DATA, d5.optimizers.SGD(0.1), batch_size=d5.schedules.Piecewise(0, {3: 4}))
    with pytest.raises(ConfigurationError, match="batch_size is 'big': it must be an integer"):
        d5.Experiment("mlp", DATA, d5.optimizers.SGD(0.1), batch_size="big")  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"batch_size is 0\.2 at epoch 1 by"):
        trained(epochs=2, batch_size=d5.schedules.Piecewise(16, {1: 0.2}))
    with pytest.warns(UserWarning, match=r"at epoch 7, but the run ends after 2 epochs with 16 steps"):
        trained(epochs=2, batch_size=d5.schedules.Piecewise(32, {7: 64}))


def test_it_can_be_written_in_a_recipe() -> None:
    """`--set 'batch_size=Piecewise(32, {20: 128})'`, or a number as ever."""
    assert settings.built({"batch_size": "Piecewise(32, {20: 128})"})["batch_size"] == d5.schedules.Piecewise(
        32, {20: 128}
    )
    assert settings.built({"batch_size": 64})["batch_size"] == 64
