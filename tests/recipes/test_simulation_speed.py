"""Claims about timing simulations: the gradients beside them are the same ones, and whole ones are whole."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from benchmarks.allreduce_speed.baselines import ThroughTorch
from benchmarks.simulation_speed import recipe as recipe
from benchmarks.simulation_speed.job import BesideGradients, OfMany, Simulations
from benchmarks.simulation_speed.worker import Whole, WithGradients
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.frameworks.torch import from_model
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.store import Run, list_runs
from d5ray.networks.executors.executor import Executor
from d5ray.recipes.engine.recipe import Recipe
from d5ray.simulator import simulate
from tests.conftest import d5ray

STEPS = 3
seen: list[tuple[int, bytes]] = []  # every gradient that was computed: whose executor, of which inputs


def watched(*given: Any, **named: Any) -> Executor:
    """LeNet's executor, which notes what it computes a gradient of."""
    made = from_model(*given, **named)
    compute = made.inference_and_backprop

    def noted(inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], *others: Any) -> float:
        seen.append((id(made), inputs.tobytes() + labels.tobytes()))
        return compute(inputs, labels, *others)

    made.inference_and_backprop = noted  # type: ignore[method-assign, assignment]
    return made


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    seen.clear()
    yield


def job(**changes: Any) -> Simulations:
    """The recipe's, with other values."""
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    assert isinstance(made, Simulations)
    return replace(made, **changes)


# -- the gradients beside a simulation ---------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    "contender", [BesideGradients(d5.optimizers.AllreduceSGD(), 3), BesideGradients(d5.optimizers.ASGD(), 3)]
)
def test_the_gradients_alone_are_those_of_the_simulation(contender: BesideGradients, tmp_path: Path) -> None:
    """The same executors on the same batches, in every repetition; one of each side is a warm-up."""
    experiment = replace(contender.experiment(job(batch_size=4)), executor=watched)
    simulated, bare = WithGradients(experiment, STEPS, 1e-6, tmp_path)(0)
    assert (len(simulated.seconds), len(bare.seconds), simulated.loops) == (5, 5, 1)
    assert min(simulated.seconds) > 0 and min(bare.seconds) > 0
    turns = np.array([hash(each) for each in seen]).reshape(6, 2, 3 * STEPS)  # (repetition, side, gradients)
    for first, second in turns:
        assert sorted(first) == sorted(second)
        assert len(set(first)) == 3 * STEPS
    assert len({own for own, _ in seen}) == 3


def test_the_gradients_alone_come_in_the_order_of_steps_and_ranks(tmp_path: Path) -> None:
    contender = BesideGradients(d5.optimizers.AllreduceSGD(), 3)
    work = WithGradients(contender.experiment(job(batch_size=4)), STEPS, 1.0, tmp_path)
    with simulate(work.experiment, root=tmp_path) as group:
        batches = work.batches(group)
        due = [next(batches) for _ in range(3 * STEPS)]
        order = np.random.default_rng([1, 0]).permutation(len(group.agents[0].data.dataset.train))
        inputs = group.agents[0].data.dataset.train.inputs
        for position, (executor, found, labels) in enumerate(due):
            step, rank = divmod(position, 3)
            own = order[12 * step + 4 * rank :][:4]
            assert np.array_equal(found, inputs[own]) and len(labels) == 4
            assert executor is group.agents[rank].executor._inner  # type: ignore[attr-defined]


@pytest.mark.full
def test_a_fresh_process_gives_the_times_of_both_sides(tmp_path: Path) -> None:
    measured = BesideGradients(d5.optimizers.DPSGD(), 2, d5.topologies.Ring).measure(
        job(steps=2, seconds=0.01), tmp_path
    )
    assert [(one.metric, one.at, one.rank, len(one.values)) for one in measured] == [
        ("training_time", "simulated", 0, 5), ("training_time", "gradients alone", 0, 5),
    ]  # fmt: skip
    simulated, bare = ([v for v in one.values if v is not None] for one in measured)
    assert np.median(simulated) > 0.7 * np.median(bare)  # it contains them


# -- whole simulations -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """Runs the work, and keeps the simulated run's folder for a look at it."""

    experiment: Experiment
    folder: Path

    def of(self, steps: int) -> tuple[tuple[float, float, float], Run]:
        found = Whole(self.experiment, steps, self.folder)(0)
        (run,) = list_runs(self.folder)
        return found, run


def test_a_whole_simulation_ends_with_its_complete_tables(tmp_path: Path) -> None:
    """Eight agents with four shards: 9,985 parameters, a sample each, all their steps in the tables."""
    experiment = OfMany(d5.optimizers.ASGD(), 8, shards=4).experiment(job())
    (wall, processor, peak), run = Kept(experiment, tmp_path).of(steps=6)
    assert (run.row["status"], run.row["agents"], run.row["steps"]) == ("completed", 8, 6)
    counted = sql(
        run, "select count(*) n, sum(value) total from samples where metric = 'samples'"
    ).to_pylist()
    assert counted == [{"n": 8 * 6, "total": 8 * 6}]
    sent = sql(run, "select max(value) most from samples where metric = 'bytes_sent'").to_pylist()
    assert sent == [{"most": 4 * 9985}]
    shards = sql(
        run, "select distinct json_array_length(detail, '$.orders') n from events where name = 'push_pull'"
    )
    assert shards.to_pylist() == [{"n": 4}]
    assert processor > 0 and 0 < wall < 60 and 50e6 < peak < 50e9


def test_many_agents_are_simulated_in_the_first_rounds_alone() -> None:
    turns = [(pair, contender.name) for pair, contender in job(pairs=3, many_rounds=2).turns()]
    assert [pair for pair, name in turns if name == "DPSGD[1024]"] == [0, 1]
    assert [pair for pair, name in turns if name == "ADPSGD[16]"] == [0, 1, 2]


# -- the recipe --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "steps"),
        ({"many_steps": 0}, "many_steps"),
        ({"many_rounds": -1}, "many_rounds"),
        ({"seconds": 0}, "seconds"),
        ({"model": "lanet"}, "did you mean 'lenet'"),
        ({"many_model": "mpl"}, "did you mean 'mlp'"),
        ({"batch_size": 0}, "batch_size"),
        ({"many_batch_size": 2}, "one step of all agents takes 2048"),
        ({"comparisons": ((ThroughTorch(2),),)}, "BesideGradients"),
    ],
)
def test_a_wrong_value_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        job(**change)


def test_a_cluster_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="outside Ray"):
        job().connect("10.0.0.1:6379", {}, quiet=True)


def test_every_criterion_is_about_who_is_simulated_and_everybody_is_in_one() -> None:
    contenders = job().contenders()
    metrics = [criterion.metric for criterion in recipe.METRICS]
    assert [vars(metric)["contender"] for metric in metrics] == [c.name for c in contenders]
    assert [c.processes for c in contenders] == [16] * 5 + [1024] * 2


@pytest.mark.slow
def test_the_recipe_measures_everybody_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    few = ("--set", "many_steps=1", "--set", "steps=3", "--set", "seconds=0.1", "--set", "pairs=1", "--json")
    done = d5ray("run", "benchmarks/simulation_speed", *few, seconds=280)
    assert (done.code, done.json["verdict"]) == (2, "INCONCLUSIVE"), done
    (run,) = list_runs(tmp_path / "runs")
    counted = sql(run, "select scope, count(*) n from samples where value > 0 group by all").to_pylist()
    assert {row["scope"]: row["n"] for row in counted} == {
        **{f"{c.name} {side}": 5 for c in recipe.BESIDE for side in ("simulated", "gradients alone")},
        **{c.name: 3 for c in recipe.MANY},
    }
    assert not done.left()
