"""Claims about timing simulations: the gradients beside them are the same ones, and whole ones are whole."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from benchmarks.simulation_speed import recipe as recipe
from benchmarks.simulation_speed.job import BesideGradients, OfMany
from benchmarks.simulation_speed.worker import beside_gradients, whole_simulation
from d5ray.frameworks.torch import from_model
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.reader import list_runs
from d5ray.networks.executors.executor import Executor
from tests.kits.laboratory.comparing import job_of

STEPS = 12  # enough for one sample of time on any machine
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


# -- the gradients beside a simulation ---------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    "contender", [BesideGradients(d5.optimizers.AllreduceSGD(), 3), BesideGradients(d5.optimizers.ASGD(), 3)]
)
def test_the_gradients_alone_are_those_of_the_simulation(contender: BesideGradients, tmp_path: Path) -> None:
    """The same executors on the same batches, in every repetition; two of each side are a warm-up."""
    experiment = replace(contender.experiment(job_of(recipe, batch_size=4)), executor=watched)
    simulated, bare = beside_gradients(experiment, STEPS, 1e-6, tmp_path).values()
    assert (len(simulated.seconds), len(bare.seconds), simulated.loops) == (5, 5, 1)
    assert min(simulated.seconds) > 0 and min(bare.seconds) > 0
    turns = np.array([hash(each) for each in seen]).reshape(14, 3 * STEPS)  # by side, twice for a warm-up
    for first, second in [turns[[0, 2]], turns[[1, 3]], *turns[4:].reshape(5, 2, 3 * STEPS)]:
        assert sorted(first) == sorted(second)
        assert len(set(first)) == 3 * STEPS
    assert len({own for own, _ in seen}) == 3


# -- whole simulations -------------------------------------------------------------------------------------


def test_a_whole_simulation_ends_with_its_complete_tables(tmp_path: Path) -> None:
    """Eight agents with four shards: 9,985 parameters, a sample each, all their steps in the tables."""
    experiment = OfMany(d5.optimizers.ASGD(), 8, shards=4).experiment(job_of(recipe))
    wall, processor, peak = whole_simulation(experiment, 6, tmp_path)
    (run,) = list_runs(tmp_path)
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


# -- the recipe --------------------------------------------------------------------------------------------


def test_many_agents_are_simulated_in_the_first_rounds_alone() -> None:
    job = job_of(recipe, pairs=3, many_rounds=2)
    turns = [(pair, contender.name) for pair, contender in job.interleaved()]
    assert [pair for pair, name in turns if name == "DPSGD[1024]"] == [0, 1]
    assert [pair for pair, name in turns if name == "ADPSGD[16]"] == [0, 1, 2]
