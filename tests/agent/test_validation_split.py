"""Claims about a split to validate on: epochs look at it, events and metrics too, and the end at the test"""

from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError, DataError
from tests.training.datasets.test_arrays import equal

DIGITS = d5.datasets.load_dataset("digits", validation=0.2)
PLAIN = d5.Dataset("plain", DIGITS.train, DIGITS.test, DIGITS.classes)


class Seen(d5.Event):
    """Records which split each evaluation was on, its accuracy, and the steps done."""

    def before_run(self, moment: d5.events.Moment) -> None:
        moment.record("begun", 1.0)

    def after_test(self, moment: d5.events.Moment) -> None:
        assert moment.evaluation is not None
        moment.record(f"seen_{moment.split}", moment.evaluation.accuracy)


class Mean(d5.events.Quality):
    """The mean label of the samples that are evaluated."""

    records = ("mean_label",)

    def measure(self, pieces: Any) -> dict[str, float | None]:
        return {"mean_label": float(np.concatenate([targets for _, targets in pieces]).mean())}


def run(dataset: d5.Dataset, **values: Any) -> Any:
    """The tables and parameters of three epochs of two simulated agents."""
    given: dict[str, Any] = {"agents": 2, "batch_size": 32, "epochs": 3, "events": (Seen(),)}
    experiment = d5.Experiment("mlp", dataset, d5.optimizers.Momentum(0.1, 0.9), **(given | values))
    with d5.simulate(experiment) as group:
        group.train()
        parameters = group.parameters()
    return group.tables(), parameters


def rows(tables: Any, metric: str, phase: str | None = None) -> list[tuple[int, float]]:
    """Step and value of an agent's rows."""
    found = tables["samples"].to_pylist()
    return [
        (row["step"], row["value"])
        for row in found
        if row["metric"] == metric and row["rank"] == 0 and phase in (None, row["phase"])
    ]


def test_epochs_are_evaluated_on_the_validation_split_and_the_end_on_the_test_split() -> None:
    """Three validations, one test; what is trained is what is trained without the split, to the last bit."""
    tables, parameters = run(DIGITS)
    plain, without = run(PLAIN)
    assert equal(parameters, without)
    assert len(rows(tables, "validation_accuracy", "validation")) == 3
    assert rows(tables, "test_accuracy", "test") == rows(plain, "test_accuracy", "test")[-1:]
    assert [name for name in ("seen_validation", "seen_test") for _ in rows(tables, name)] == [
        "seen_validation", "seen_validation", "seen_validation", "seen_test",
    ]  # fmt: skip
    assert rows(plain, "validation_accuracy") == [] and len(rows(plain, "test_accuracy")) == 3


def test_the_values_are_those_of_the_split_tested_on() -> None:
    """The accuracies on the validation split are those of a data set that tests on it."""
    tables, _ = run(DIGITS)
    assert DIGITS.validation is not None
    other, _ = run(d5.Dataset("other", DIGITS.train, DIGITS.validation, DIGITS.classes))
    assert rows(tables, "validation_accuracy") == rows(other, "test_accuracy")
    assert rows(tables, "validation_loss") == rows(other, "test_loss")
    last = d5.metrics.ValidationAccuracy().estimate(tables).value
    assert last == d5.metrics.TestAccuracy().estimate(other).value


def test_the_test_split_is_looked_at_each_epoch_where_that_is_asked() -> None:
    tables, _ = run(DIGITS, evaluate_test=True)
    plain, _ = run(PLAIN)
    assert rows(tables, "test_accuracy") == rows(plain, "test_accuracy")
    assert len(rows(tables, "validation_accuracy")) == 3


def test_an_accuracy_is_reached_on_the_validation_split() -> None:
    """By the event, and by the metrics of cost: at the evaluation of the validation split that does."""
    tables, _ = run(DIGITS)
    steps, accuracies = zip(*rows(tables, "validation_accuracy"), strict=True)
    target = accuracies[1]
    assert accuracies[0] < target
    assert d5.metrics.StepsToAccuracy(target).estimate(tables).value == steps[1] + 1
    stopped, _ = run(DIGITS, events=(d5.events.StopAtAccuracy(target),), epochs=3)
    assert rows(stopped, "validation_accuracy")[-1] == (steps[1], target)
    assert len(rows(stopped, "test_accuracy")) == 1
    assert stopped["runs"]["stop_reason"].to_pylist() == [
        f"validation_accuracy {target:.4f} reached {target:g}"
    ]


def test_each_call_of_train_ends_with_an_evaluation_that_counts() -> None:
    """Also within one epoch: of three calls the second meets the accuracy, after 7 + 7 steps."""
    experiment = d5.Experiment("mlp", PLAIN, d5.optimizers.Momentum(0.1, 0.9), agents=2, batch_size=24)
    with d5.simulate(experiment, compute=d5.simulation.LogNormalTime(1e-3)) as group:
        for _ in range(3):
            group.train(7)
        tables = group.tables()
    steps, accuracies = zip(*rows(tables, "test_accuracy"), strict=True)
    curve = d5.metrics.convergence_curve(tables)
    assert (steps, accuracies) == ((6, 13, 20), tuple(curve["value"].to_pylist()))
    assert accuracies[0] < (target := accuracies[1])
    assert d5.metrics.StepsToAccuracy(target).estimate(tables).value == 14
    spent = sum(seconds for step, seconds in rows(tables, "step_time") if step < 14)
    assert d5.metrics.TimeToAccuracy(target).estimate(tables).value == pytest.approx(spent)
    assert d5.metrics.EvaluationTime().estimate(tables).n == 3


def test_a_training_that_was_resumed_does_not_know_what_it_took() -> None:
    """Its steps after the checkpoint are less: no time to an accuracy, and no first evaluation with it."""
    checkpoint = d5.events.Checkpoint(every_epochs=1)
    experiment = d5.Experiment("mlp", PLAIN, d5.optimizers.SGD(0.1), epochs=3, events=(checkpoint,))
    with d5.simulate(experiment) as first:
        first.train(epochs=1)
    with d5.simulate(experiment, resume=first.run_id) as group:
        group.train()
        tables = group.tables()
    for metric in (d5.metrics.TimeToAccuracy(0.01), d5.metrics.StepsToAccuracy(0.01)):
        found = metric.estimate(tables)
        assert found.value is None and "resumed at step 18" in found.reason
    curve = d5.metrics.convergence_curve(tables)
    assert (curve["step"].to_pylist(), np.isnan(curve["seconds"]).all()) == ([35, 53], True)


def test_a_plateau_is_one_of_the_validation_split() -> None:
    """Rates of nearly zero: no epoch is better than the first."""
    tables, _ = run(
        DIGITS, events=(d5.events.StopAtPlateau("test_accuracy", patience=1, least_change=0.9),), epochs=5
    )
    assert len(rows(tables, "validation_accuracy")) == 2
    (why,) = tables["runs"]["stop_reason"].to_pylist()
    assert why.startswith("validation_accuracy has not become better")


def test_a_quality_is_measured_on_the_samples_of_the_evaluation() -> None:
    tables, _ = run(DIGITS, events=(Mean(),), epochs=2)
    assert DIGITS.validation is not None
    expected = [DIGITS.validation.labels.mean()] * 2, [DIGITS.test.labels.mean()]
    found = [[value for _, value in rows(tables, "mean_label", phase)] for phase in ("validation", "test")]
    assert found == [pytest.approx(each) for each in expected]


def test_agents_that_do_not_wait_end_with_a_test() -> None:
    """An asynchronous training: the last evaluations are of what all have made together."""
    tables, _ = run(DIGITS, distributed=d5.optimizers.ASGD(), epochs=1)
    assert len(rows(tables, "test_accuracy")) == 1 and len(rows(tables, "validation_accuracy")) >= 1


def test_a_contest_keeps_samples_to_validate_on_by_name() -> None:
    """The same ones for everyone; they are those that load_dataset gives."""
    experiment = d5.Experiment(
        "mlp", "digits", d5.optimizers.SGD(0.1), dataset_kwargs={"validation": 0.2}, batch_size=1150
    )
    assert experiment.load_dataset().fingerprint == DIGITS.fingerprint
    assert {part: len(split) for part, split in DIGITS.splits.items()} == {
        "train": 1150, "test": 359, "validation": 288,
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match="batch_size is 1151, but an epoch has 1150 samples"):
        experiment.with_values(batch_size=1151)


def test_without_a_split_to_validate_on_nothing_is_another() -> None:
    """The fingerprint and the hash of an experiment are those that they were."""
    made = d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1))
    assert "evaluate_test" not in made.describe()
    assert PLAIN.fingerprint != DIGITS.fingerprint
    assert d5.Dataset("p", PLAIN.train, PLAIN.test, 10, None).fingerprint == PLAIN.fingerprint


@pytest.mark.parametrize("validation", [1.0, -0.1, "a", 1e-9, None])
def test_a_share_that_makes_no_sense_is_refused(validation: Any) -> None:
    with pytest.raises(ConfigurationError, match="validation"):
        d5.datasets.load_dataset("digits", validation=validation)


def test_a_split_of_another_shape_or_without_samples_is_refused() -> None:
    split = d5.datasets.Split
    other = split(np.zeros((2, 1, 4, 4), np.float32), np.zeros(2, np.int64))
    with pytest.raises(DataError, match=r"validation samples of shape \(1, 4, 4\)"):
        d5.Dataset("d", DIGITS.train, DIGITS.test, 10, other)
    with pytest.raises(DataError, match="0 samples to validate on"):
        d5.Dataset("d", DIGITS.train, DIGITS.test, 10, split(DIGITS.test.inputs[:0], DIGITS.test.labels[:0]))
    with pytest.raises(ConfigurationError, match="evaluate_test is 1"):
        d5.Experiment("mlp", DIGITS, d5.optimizers.SGD(0.1), evaluate_test=1)  # type: ignore[arg-type]
