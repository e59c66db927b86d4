"""Claims about qualities beside accuracy: a user's own, and losses of one's own"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.recipes.engine.parsing.measured import check_measured
from d5ray.training.events.evaluations import Pieces


class SquaredError(d5.Loss):
    """Mean of (score − target)², over the batch."""

    classifies = False

    def check(self, output_shape: tuple[int, ...], classes: int) -> None: ...

    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        return ((scores - labels) ** 2).mean()


class WorstError(d5.events.Quality):
    """The largest deviation, and how many samples there were."""

    records = ("worst_error", "tested")

    def measure(self, pieces: Pieces) -> Mapping[str, float | None]:
        found = [np.abs(outputs - targets).max(axis=1) for outputs, targets in pieces]
        return {"worst_error": float(max(map(np.max, found))), "tested": float(sum(map(len, found)))}


class LastWorstError(d5.metrics.LastEvaluation):
    name = "worst_error"
    direction = "min"
    description = "the largest deviation on the test set"


def regression(count: int = 600, test: int = 300) -> d5.Dataset:
    """y = A x of three numbers: targets that are no classes."""
    rng = np.random.default_rng(5)
    mix = rng.standard_normal((3, 2))
    parts = []
    for size in (count, test):
        x = rng.standard_normal((size, 3))
        parts.append(d5.datasets.Split(x.astype(np.float32), np.ascontiguousarray(x @ mix, dtype=np.float32)))
    return d5.Dataset("line", parts[0], parts[1], ())


def linear() -> nn.Module:
    return nn.Linear(3, 2)


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": linear, "dataset": regression(), "optimizer": d5.optimizers.SGD(0.1), "loss": SquaredError(),
        "agents": 2, "epochs": 3, "batch_size": 10, "events": (WorstError(),), "seed": 1,
    }  # fmt: skip
    return d5.Experiment(**values | changes)


def test_a_workload_of_ones_own_has_its_loss_its_targets_and_its_quality(tmp_path: Path) -> None:
    """The rows are what the network's own outputs give; a criterion on the last one is met; no accuracy."""
    with d5.simulate(experiment(), root=tmp_path) as group:
        group.train(progress=False)
        agent: Any = group.agents[0]
        test = agent.data.dataset.test
        worst = float(np.abs(agent.executor.inference(test.inputs) - test.labels).max())
        tables = group.tables()
    rows = d5.metrics.Rows(tables, "worst_error", "test")
    assert rows.epoch.tolist() == [0, 1, 2] * 2 and rows.value[2] == worst < rows.value[0]
    assert set(d5.metrics.Rows(tables, "tested").value) == {300.0}
    assert rows.step.tolist() == d5.metrics.Rows(tables, "test_loss").step.tolist()
    assert (LastWorstError() <= 1.1 * worst).judge(tables).verdict == "PASS"
    assert d5.metrics.TestLoss().estimate(tables).value == pytest.approx(worst**2, rel=1.0)
    assert "null" in str(d5.metrics.TestAccuracy().estimate(tables).reason)


def test_a_criterion_that_nothing_could_decide_is_refused() -> None:
    """Before anything starts, with what to add."""
    made = experiment()
    check_measured([LastWorstError() <= 1.0], made)
    for criterion, words in (
        (d5.metrics.TestAccuracy() >= 97, "nothing can reach: test_accuracy is at most 1"),
        (d5.metrics.TestAccuracy() >= 0.5, r"records no test_accuracy: SquaredError\(\) has no accuracy"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            check_measured([criterion], made)


@pytest.mark.parametrize(
    "event",
    [d5.events.StopAtAccuracy(0.5), d5.events.SaveWrongSamples(), d5.events.StopAtPlateau("test_accuracy")],
)
def test_events_about_accuracy_are_refused_without_one(event: d5.Event) -> None:
    with pytest.raises(ConfigurationError, match=r"is about accuracy, which SquaredError\(\) does not have"):
        experiment(events=(event,))


def test_learning_curves_are_those_of_the_loss_alone(tmp_path: Path) -> None:
    with d5.simulate(experiment(events=d5.events.LearningCurves(50)), root=tmp_path) as group:
        group.train(progress=False)
    assert len(d5.metrics.Rows(group.tables(), "training_loss"))
    assert not len(d5.metrics.Rows(group.tables(), "training_accuracy"))


def test_labels_that_a_loss_ignores_are_no_mistakes(tmp_path: Path) -> None:
    """The file of wrong samples has those alone whose label counts."""
    rng = np.random.default_rng(4)
    y = np.where(np.arange(40) % 3, rng.integers(0, 3, 40), -100)
    data = d5.from_arrays(rng.standard_normal((40, 3)), y, classes=3, test=0.5)
    wanted = experiment(
        model="mlp",
        dataset=data,
        loss=d5.operators.MaskedCrossEntropyLoss(),
        events=d5.events.SaveWrongSamples(),
    )
    with d5.simulate(wanted, root=tmp_path) as group:
        group.train(progress=False)
        agent: Any = group.agents[0]
        wrong = agent.executor.inference(data.test.inputs).argmax(axis=1) != data.test.labels
        kept = pq.read_table(group.folder / "wrong_samples.parquet")["index"].to_pylist()
    assert sorted(kept) == np.flatnonzero(wrong & (data.test.labels != -100)).tolist() != []


def test_a_quality_needs_evaluations() -> None:
    with pytest.raises(ConfigurationError, match="looks at evaluations after epochs: set evaluate=True"):
        experiment(evaluate=False)


def test_a_loss_for_pytorch_alone_says_so(tmp_path: Path) -> None:
    data = d5.datasets.load_dataset("digits")
    with (
        pytest.raises(
            Exception, match=r"SquaredError\(\) has no form for this framework: train under PyTorch"
        ),
        d5.simulate(experiment(model="mlp", dataset=data, executor="numpy", events=()), root=tmp_path),
    ):
        pass


def test_squares_are_learned_alike_under_numpy_and_pytorch(tmp_path: Path) -> None:
    """A network of the catalogue, targets of two numbers: the same losses, and those of the closed form."""
    targets = regression()
    data = d5.Dataset("line", targets.train, targets.test, ("a", "b"))  # two outputs
    found = []
    for framework in ("numpy", "torch"):
        made = experiment(
            model="mlp",
            dataset=data,
            loss=d5.operators.MeanSquaredErrorLoss(),
            executor=framework,
            optimizer=d5.optimizers.SGD(0.05),
        )
        with d5.simulate(made, root=tmp_path) as group:
            group.train(progress=False)
            agent: Any = group.agents[0]
            apart = agent.executor.inference(data.test.inputs) - data.test.labels
            found.append(d5.metrics.Rows(group.tables(), "test_loss", "test").value)
            assert found[-1][2] == pytest.approx((apart**2).mean(), rel=1e-5)
            assert not len(d5.metrics.Rows(group.tables(), "test_accuracy"))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4)
    assert found[0][2] < 0.8 * found[0][0]


def test_targets_of_another_shape_are_refused() -> None:
    loss = d5.operators.MeanSquaredErrorLoss()
    scores, targets = np.ones((2, 3)), np.array([[0.0, 1, 2], [3, 4, 5]])
    step = np.zeros((2, 3))
    step[1, 0] = 1e-6
    slope = (loss.numpy(scores + step, targets) - loss.numpy(scores - step, targets)) / 2e-6
    assert slope == pytest.approx(loss.numpy_gradient(scores, targets)[1, 0], rel=1e-6)
    with pytest.raises(ConfigurationError, match=r"shape \(2, 3\) for targets of shape \(2, 2\)"):
        loss.numpy(scores, targets[:, :2])


def test_labels_that_are_no_classes_cannot_be_counted() -> None:
    with pytest.raises(ConfigurationError, match="labels of 'line' are float32: only classes"):
        d5.samplers.label_bias(regression(), d5.samplers.ShuffleSampler())
