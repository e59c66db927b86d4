"""Claims about comparing optimizers: an attempt is the training it stands for, and its target ends it"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import d5ray as d5
from d5ray.actors.shipping import ship
from d5ray.kits.laboratory.jobs.contest import Tries, series_of
from d5ray.kits.laboratory.jobs.workloads import AttemptCurve, Workload, meets, train_to_target
from d5ray.networks.executors.executor import Evaluation
from d5ray.recipes import optimizer_comparison
from tests.kits.laboratory.comparing import LINEAR, job_of


def attempt(workload: Workload, optimizer: d5.Optimizer | None = None, seed: int = 3) -> AttemptCurve:
    shipped = ship(workload.experiment(optimizer or d5.optimizers.SGD(0.5), seed))
    return train_to_target(shipped, workload.target, workload.steps, workload.every, 0)


# -- attempts ----------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    "optimizer",
    [
        d5.optimizers.Momentum(0.05, 0.9),
        d5.optimizers.Muon(0.02),
        d5.optimizers.AcceleGrad(0.1),  # moves the parameters before the gradient is taken
        d5.optimizers.Scheduled(d5.optimizers.SGD(0.5), learning_rate=d5.schedules.Piecewise(0.5, {1: 0.1})),
    ],
    ids=repr,
)
def test_an_attempt_is_the_training_of_one_agent(optimizer: d5.Optimizer, tmp_path: Path) -> None:
    """Evaluated once an epoch it has the losses and accuracies of the simulation, to the last bit."""
    workload = replace(LINEAR, target=d5.metrics.TestLoss() <= 0)
    curve = attempt(workload, optimizer)
    experiment = workload.experiment(optimizer, 3)
    with d5.simulate(experiment.with_values(epochs=3), root=tmp_path) as group:
        group.train(progress=False)
        samples = group.metrics().to_pandas()
    for metric, values in (
        ("test_loss", [found.loss for found in curve.found]),
        ("test_accuracy", [found.accuracy for found in curve.found]),
    ):
        assert samples[samples.metric == metric].sort_values("step").value.tolist() == values
    assert (curve.steps, curve.samples, curve.reached) == ([45, 90, 135], [1438, 2876, 4314], False)
    assert curve.seconds == sorted(curve.seconds) and curve.seconds[0] > 0


def test_the_first_evaluation_that_meets_the_target_ends_it() -> None:
    """Nothing is interpolated: the accuracy is met after 45 steps, not in between."""
    curve = attempt(replace(LINEAR, every=15))
    assert curve.reached and curve.found[-1].accuracy >= 0.9
    assert all(found.accuracy < 0.9 for found in curve.found[:-1])
    assert curve.steps == [15 * (place + 1) for place in range(len(curve.steps))]


def test_what_diverges_has_missed_its_target() -> None:
    """A loss that is not a number, and a matrix that has no root: both end the attempt without an error."""
    nan = attempt(replace(LINEAR, model_kwargs={}, steps=20, every=20), d5.optimizers.SGD(1e30))
    assert not nan.reached and nan.steps == []
    roots = attempt(replace(LINEAR, model_kwargs={}), d5.optimizers.Shampoo(1e20))
    assert not roots.reached and len(roots.steps) < 3


def test_a_mistake_in_an_optimizer_is_no_miss() -> None:
    """It is raised."""

    class Wrong(d5.optimizers.UpdateRuleOptimizer):
        def update_rule(self, grad: Any, old_param: Any, param_name: str) -> Any:
            raise KeyError("velocity")

    with pytest.raises(KeyError, match="velocity"):
        attempt(LINEAR, Wrong())


@pytest.mark.parametrize(
    ("loss", "accuracy", "met"),
    [(5.0, 0.9, (True, False)), (2.0, 0.89, (False, True)), (math.nan, 1.0, (True, False))],
)
def test_a_target_is_a_criterion_on_an_evaluation(
    loss: float, accuracy: float, met: tuple[bool, bool]
) -> None:
    """Its bounds included; a loss that is not a number meets none."""
    found = Evaluation(loss=loss, accuracy=accuracy)
    targets = (d5.metrics.TestAccuracy() >= 0.9, d5.metrics.TestLoss() <= 2.0)
    assert tuple(meets(target, found) for target in targets) == met


def test_a_miss_has_taken_infinitely_long() -> None:
    """What is recorded: the curve as it was, and infinity for what was not reached."""
    curve = AttemptCurve(
        [10, 20], [0.1, 0.2], [320, 640], [Evaluation(2.0, 0.3), Evaluation(1.0, 0.6)], False
    )
    found = {series.metric: list(series.values) for series in series_of(curve)}
    assert found == {
        "evaluated_step": [10, 20], "trained_time": [0.1, 0.2], "test_accuracy": [0.3, 0.6],
        "test_loss": [2.0, 1.0], "steps_to_target": [math.inf], "time_to_target": [math.inf],
        "samples_to_target": [math.inf],
    }  # fmt: skip
    curve.reached = True
    found = {series.metric: list(series.values) for series in series_of(curve)}
    needed = [found[f"{what}_to_target"] for what in ("steps", "time", "samples")]
    assert needed == [[20], [0.2], [640]]


# -- the job -----------------------------------------------------------------------------------------------


def test_every_optimizer_tries_every_workload_with_every_seed() -> None:
    """Forwards, then backwards, so that none is always first; the seeds are the job's and those after it."""
    job = job_of(
        optimizer_comparison,
        optimizers={"a": d5.optimizers.SGD(0.1), "b": "SGD(0.2)"},  # or as text, as on the command line
        pairs=2,
        seed=7,
    )
    assert job.optimizers["b"] == d5.optimizers.SGD(0.2)
    turns = [(pair, c.optimizer, c.workload, c.seed) for pair, c in job.interleaved() if isinstance(c, Tries)]
    assert turns == [
        (pair, optimizer, workload, 7 + pair)
        for pair in range(2)
        for workload in job.workloads
        for optimizer in ("ab" if pair == 0 else "ba")
    ]
    names = {contender.name for contender in job.contenders()}
    assert names == {contender.name for _, contender in job.interleaved()} and "a, lenet[1]" in names
