"""Claims about comparing optimizers: an attempt is the training it stands for, and its target ends it"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import d5ray as d5
from d5ray.actors.group.run_row import RunOrigin
from d5ray.actors.shipping import ship
from d5ray.errors import ConfigurationError
from d5ray.metrics.judge.criteria import Criterion
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.store import Run
from d5ray.networks.executors.executor import Evaluation
from d5ray.recipes import optimizer_comparison
from d5ray.recipes.engine import library
from d5ray.recipes.engine.comparisons import rounds
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.jobs.attempts import Attempt, AttemptCurve
from d5ray.recipes.jobs.contest import Contest, Tries, series_of
from d5ray.recipes.jobs.workloads import Workload, meets

LINEAR = Workload(
    model="mlp", model_kwargs={"hidden": ()}, dataset="digits", target=d5.metrics.TestAccuracy() >= 0.9,
    steps=135,
    every=45,
)  # fmt: skip


def contest(**changes: Any) -> Contest:
    """The recipe's, with other values."""
    parts = (optimizer_comparison.FIXED, optimizer_comparison.MUTABLE, optimizer_comparison.METRICS)
    made = Recipe.of(*parts, name="x").made()
    assert isinstance(made, Contest)
    return replace(made, **changes)


def attempt(workload: Workload, optimizer: d5.Optimizer | None = None, seed: int = 3) -> AttemptCurve:
    shipped = ship(workload.experiment(optimizer or d5.optimizers.SGD(0.5), seed))
    return Attempt(shipped, workload.target, workload.steps, workload.every)(0)


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
    ("target", "accuracy", "loss", "met"),
    [
        (d5.metrics.TestAccuracy() >= 0.9, 0.9, 5.0, True),
        (d5.metrics.TestAccuracy() >= 0.9, 0.89, 0.0, False),
        (d5.metrics.TestLoss() <= 2.0, 0.0, 2.0, True),
        (d5.metrics.TestLoss() <= 2.0, 1.0, 2.01, False),
        (d5.metrics.TestLoss() <= 2.0, 1.0, math.nan, False),
    ],
)
def test_a_target_is_a_criterion_on_an_evaluation(
    target: Criterion, accuracy: float, loss: float, met: bool
) -> None:
    assert meets(target, Evaluation(loss=loss, accuracy=accuracy)) == met


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
    job = contest(optimizers={"a": d5.optimizers.SGD(0.1), "b": d5.optimizers.SGD(0.2)}, pairs=2, seed=7)
    turns = [(pair, c.optimizer, c.workload, c.seed) for pair, c in job.turns() if isinstance(c, Tries)]
    assert turns == [
        (pair, optimizer, workload, 7 + pair)
        for pair in range(2)
        for workload in job.workloads
        for optimizer in ("ab" if pair == 0 else "ba")
    ]
    names = {contender.name for contender in job.contenders()}
    assert names == {contender.name for _, contender in job.turns()} and "a, lenet[1]" in names


def test_optimizers_may_be_written_as_text() -> None:
    """As on the command line."""
    job = contest(optimizers={"mine": "AdamW(0.005)", "plain": d5.optimizers.SGD(0.1)})
    assert job.optimizers == {"mine": d5.optimizers.AdamW(0.005), "plain": d5.optimizers.SGD(0.1)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizers": {}}, "optimizers is {}: it must be a dictionary"),
        ({"optimizers": d5.optimizers.SGD(0.1)}, "must be a dictionary such as {'AdamW'"),
        ({"optimizers": {"a, b": d5.optimizers.SGD(0.1)}}, "has the name 'a, b'"),
        ({"optimizers": {"a[1]": d5.optimizers.SGD(0.1)}}, "without ', ' and brackets"),
        ({"optimizers": {"a": 0.1}}, "optimizer is 0.1"),
        ({"optimizers": {"a": "AdmW(0.1)"}}, "did you mean d5.optimizers.AdamW"),
        ({"workloads": {"a": "lenet"}}, "it must be a Workload"),
        ({"workloads": {7: LINEAR}}, "has the name 7"),
        ({"workloads": {"a": replace(LINEAR, dataset="digit")}}, "did you mean 'digits'"),
        ({"workloads": {"a": replace(LINEAR, batch_size=0)}}, "batch_size"),
        ({"pairs": 0}, "pairs"),
        ({"comparisons": ((Tries("a", "b"),),)}, "leave them out"),
    ],
)
def test_a_wrong_value_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        contest(**change)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"every": 0}, "every is 0"),
        ({"every": 200}, "every is 200, more than the 135 steps"),
        ({"target": 0.9}, "target is 0.9: it must be a criterion on TestAccuracy() or TestLoss()"),
        ({"target": d5.metrics.StepTime() <= 1.0}, "such as TestAccuracy() >= 0.97"),
    ],
)
def test_a_wrong_workload_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        replace(LINEAR, **change)
    assert words in str(caught.value)


def test_no_cluster_is_used() -> None:
    with pytest.raises(ConfigurationError, match="outside Ray"):
        contest().connect("10.0.0.1:6379", {}, quiet=True)


# -- recipes -----------------------------------------------------------------------------------------------

OWN = """
import d5ray as d5
from d5ray.metrics.judge.performance_profiles import PerformanceScore
from d5ray.recipes.jobs.contest import Contest
from d5ray.recipes.jobs.workloads import Workload

class Mine(d5.optimizers.UpdateRuleOptimizer):
    def update_rule(self, grad, old_param, param_name):
        return old_param - self.learning_rate * grad

FIXED = {
    "job": Contest,
    "workloads": {
        "linear": Workload(
            model="mlp", model_kwargs={"hidden": ()}, dataset="digits",
            target=d5.metrics.TestAccuracy() >= 0.9,
            steps=90, every=15,
        ),
    },
}
MUTABLE = {"optimizers": {"mine": Mine(0.5)}, "pairs": 1, "seed": 1}
METRICS = [PerformanceScore("mine", by="seconds") >= 0.9, PerformanceScore("another") >= 0.1]
"""


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A D5RAY_HOME with nothing in it."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    yield tmp_path


@pytest.mark.slow
def test_an_optimizer_of_ones_own_competes(own_home: Path) -> None:
    """A recipe in a file, reduced to seconds: verdicts and rows."""
    file = own_home / "own.py"
    file.write_text(OWN)
    module = library.load(str(file))
    recipe = Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name="own")
    result = rounds.run(recipe.made(), recipe, RunOrigin(**recipe.described()), None, quiet=True)
    assert [(v.value, v.verdict) for v in result.verdicts] == [(1.0, "PASS"), (None, "INCONCLUSIVE")]
    run = Run(result.folder)
    (row,) = sql(run, "select scope, value from samples where metric = 'steps_to_target'").to_pylist()
    assert row["scope"] == "mine, linear[1]" and row["value"] in (15, 30, 45, 60, 75, 90)
    assert {path.suffix for path in result.folder.iterdir()} == {".parquet"}


def test_the_shipped_recipe_judges_whom_it_measures() -> None:
    """Every criterion is about an optimizer that competes, and there are at least four workloads."""
    named = {getattr(criterion.metric, "optimizer", None) for criterion in optimizer_comparison.METRICS}
    assert named <= set(contest().optimizers)
    assert len(contest().workloads) >= 4
