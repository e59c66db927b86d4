"""Claims about comparing whole trainings: equal seeds in pairs, and metrics against planted rows"""

from dataclasses import replace

import pyarrow as pa
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.metrics.definitions.trainings import UPDATES, AccuracyDifference, TrainingTimeRatio, UpdatesRatio
from d5ray.metrics.record.recorder import Recorder
from d5ray.recipes import batch_or_rate as recipe
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.jobs.trainings import Training, Trainings


def job(**changes: object) -> Trainings:
    """The recipe's, with other values."""
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    assert isinstance(made, Trainings)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_both_see_the_same_samples_and_each_round_another_seed() -> None:
    """The experiments differ in rate and batch alone; both of a round have one seed, another each round."""
    made = job(pairs=3, seed=5)
    turns = [(pair, contender) for pair, contender in made.turns() if isinstance(contender, Training)]
    found = [(pair, contender.name, contender.experiment(made)) for pair, contender in turns]
    assert [(pair, e.seed) for pair, _, e in found] == [(0, 5), (0, 5), (1, 6), (1, 6), (2, 7), (2, 7)]
    assert [name for _, name, _ in found[:4]] == [*recipe.BOTH, *reversed(recipe.BOTH)]
    first, second = found[0][2], found[1][2]
    assert first.with_values(batch_size=16, optimizer=second.optimizer, name=second.name) == second
    for epoch in range(40):
        rate = recipe.RATE.value(epoch)
        assert isinstance(first.batch_size, d5.Schedule)
        assert first.batch_size.value(epoch) == pytest.approx(16 * 0.05 / rate)


def rows(values: dict[tuple[str, str], list[float]]) -> dict[str, pa.Table]:
    """A run whose contenders wrote these, one a pair."""
    batches: list[pa.RecordBatch] = []
    recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=batches.append)
    for (metric, scope), own in values.items():
        recorder.declare(metric, "1")
        for pair, value in enumerate(own):
            recorder.record(metric, value, step=0, phase="run", scope=scope, rep=pair)
    recorder.flush()
    return {"samples": pa.Table.from_batches(batches)}


def test_the_metrics_are_those_of_the_pairs() -> None:
    """Nine pairs: differences from -0.04 to 0.04; the second smallest and largest bound the median."""
    run = rows(
        {
            ("test_accuracy", "a[2]"): [0.9 + 0.01 * pair for pair in range(9)],
            ("test_accuracy", "b[2]"): [0.94] * 9,
            (UPDATES, "a[2]"): [50.0] * 9,
            (UPDATES, "b[2]"): [200.0] * 9,
            ("training_time", "a[2]"): [1.0, 2.0, 4.0] * 3,
            ("training_time", "b[2]"): [2.0, 4.0, 8.0] * 3,
        }
    )
    found = AccuracyDifference("a[2]", "b[2]").estimate(run)
    assert (found.value, found.low, found.high) == pytest.approx((0.0, -0.03, 0.03), abs=1e-12)
    assert (found.n, found.sample_unit) == (9, "pairs of equal seeds")
    assert UpdatesRatio("a[2]", "b[2]").estimate(run).value == 0.25
    assert TrainingTimeRatio("a[2]", "b[2]").estimate(run).value == 0.5


def test_what_was_not_measured_is_said() -> None:
    run = rows({("test_accuracy", "a[2]"): [0.9] * 4, ("test_accuracy", "b[2]"): [0.8] * 4})
    assert "2 more" in AccuracyDifference("a[2]", "b[2]").estimate(run).reason
    assert "c[2] was not measured" in AccuracyDifference("a[2]", "c[2]").estimate(run).reason
    assert "d[2] was not measured" in AccuracyDifference("d[2]", "b[2]").estimate(run).reason


def test_a_wrong_training_is_refused_before_it_starts() -> None:
    with pytest.raises(ConfigurationError, match="batch_size is 0"):
        job(comparisons=((Training("none", d5.optimizers.SGD(0.1), 0),),))
    with pytest.raises(ConfigurationError, match="epochs is 0"):
        job(epochs=0)
