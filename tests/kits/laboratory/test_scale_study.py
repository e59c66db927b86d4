"""Claims about the study of scale: times and formulas are closed forms, and nothing is left out."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from d5ray.kits.laboratory.comparisons.contenders import RankSeries
from d5ray.kits.laboratory.jobs.scaled import ALGORITHMS, allreduce_exchange, server_exchange
from d5ray.kits.laboratory.jobs.scaling import Scaled
from d5ray.recipes import scale_study as recipe
from tests.kits.laboratory.comparing import job_of

BYTES = 4 * 76_810  # of the perceptron's gradient
STEPS = 3  # in an epoch


def measured(contender: Scaled, tmp_path: Path, **changes: Any) -> list[RankSeries]:
    """What a contender measures, in a folder of its own."""
    folder = tmp_path / contender.name
    folder.mkdir()
    return contender.measure(job_of(recipe, **changes), folder)


def found(series: list[RankSeries], metric: str, rank: int = 0) -> list[float]:
    """The values of one metric at one rank."""
    (values,) = (one.values for one in series if (one.metric, one.rank) == (metric, rank))
    return [value for value in values if value is not None]


# -- formulas ----------------------------------------------------------------------------------------------


def test_the_closed_forms_are_those_of_the_literature() -> None:
    """By hand: 4 agents, 1 MB, 1 ms, 10 ns a byte. One server: 2 + 80 ms; two: 2 + 40; allreduce: 4 + 15."""
    latency, seconds_per_byte = 1e-3, 1e-8
    for exchange, agents, payload, seconds in (
        (server_exchange, 4, 1e6, 82e-3),
        (partial(server_exchange, shards=2), 4, 1e6, 42e-3),
        (allreduce_exchange, 4, 1e6, 19e-3),
        (allreduce_exchange, 8, 0, 6e-3),
        (allreduce_exchange, 1, 1e6, 0),
    ):
        assert exchange(agents, payload, latency, seconds_per_byte) == pytest.approx(seconds)


# -- simulated trainings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("straggler", [False, True])
def test_an_evaluation_is_at_the_time_of_its_steps(straggler: bool, tmp_path: Path) -> None:
    """Allreduce of four: a step is 112 samples at 1 ms, four times that for a straggler, and an exchange."""
    exchange = 2 * 1e-3 * 2 + 2 * BYTES / 12.5e6 * 3 / 4
    step = 0.112 * (4 if straggler else 1) + exchange
    series = measured(Scaled("allreduce", "slow", straggler, 4), tmp_path, epochs=2)
    for rank in range(4):
        elapsed = found(series, "elapsed_time", rank)
        assert elapsed == pytest.approx([STEPS * step, 2 * STEPS * step], rel=1e-6)
        assert found(series, "test_accuracy", rank) == found(series, "test_accuracy", 0)  # one model
    assert found(series, "bytes_sent") == [2 * STEPS * 2 * round(BYTES * 3 / 4)]


def test_the_time_to_an_accuracy_is_that_of_the_first_evaluation_that_has_it(tmp_path: Path) -> None:
    """One agent needs some epochs for 0.75; nobody has 1.01 ever."""
    series = measured(Scaled("LocalSGD", "fast", False, 1), tmp_path, epochs=4, accuracy=0.75)
    accuracies, elapsed = found(series, "test_accuracy"), found(series, "elapsed_time")
    first = next(epoch for epoch, accuracy in enumerate(accuracies) if accuracy >= 0.75)
    assert 0 < first < 4 and max(accuracies[:first]) < 0.75
    assert (
        found(series, "time_to_accuracy") == [elapsed[first]] == [pytest.approx(STEPS * 0.448 * (first + 1))]
    )
    never = measured(Scaled("ADPSGD", "fast", False, 2), tmp_path, epochs=1, accuracy=1.01)
    assert found(never, "time_to_accuracy") == [math.inf]


def test_who_does_not_wait_does_not_know_of_a_straggler(tmp_path: Path) -> None:
    """ADPSGD's first agent takes as long with one; its last evaluation, for which it waits, is left out.

    The first agent's time to an accuracy counts, which it has at once, and not the straggler's.
    """
    free, held = (
        measured(Scaled("ADPSGD", "fast", straggler, 4), tmp_path, epochs=4, accuracy=1e-9)
        for straggler in (False, True)
    )
    elapsed = found(free, "elapsed_time")
    assert len(elapsed) == len(found(held, "elapsed_time")) == 3
    assert found(held, "elapsed_time") == pytest.approx(elapsed, rel=0.01)
    assert found(held, "elapsed_time", rank=3) == pytest.approx([4 * t for t in elapsed], rel=0.02)
    assert found(held, "time_to_accuracy") == found(held, "elapsed_time")[:1]


@pytest.mark.parametrize("algorithm", ["allreduce", "parameter server"])
@pytest.mark.parametrize("network", ["fast", "slow"])
def test_the_first_exchange_is_that_of_the_closed_form(algorithm: str, network: str, tmp_path: Path) -> None:
    """Four agents, one shard: to 1 %, headers of messages included."""
    series = measured(Scaled(algorithm, network, False, 4), tmp_path, epochs=1)
    assert found(series, "exchange_time") == pytest.approx(found(series, "predicted_exchange_time"), rel=0.01)
    alpha, beta = {"fast": (50e-6, 0.8e-9), "slow": (1e-3, 80e-9)}[network]
    servers, allreduce = 2 * alpha + 8 * BYTES * beta, 4 * alpha + 1.5 * BYTES * beta
    expected = servers if algorithm == "parameter server" else allreduce
    assert found(series, "predicted_exchange_time") == pytest.approx([expected])


@pytest.mark.parametrize(
    ("algorithm", "straggler", "agents"),
    [("allreduce", True, 2), ("allreduce", False, 1), ("ADPSGD", False, 2)],
)
def test_only_exchanges_that_nobody_waits_for_are_compared_with_a_formula(
    algorithm: str, straggler: bool, agents: int, tmp_path: Path
) -> None:
    series = measured(Scaled(algorithm, "fast", straggler, agents), tmp_path, epochs=1)
    metrics = {"test_accuracy", "elapsed_time", "time_to_accuracy", "bytes_sent"}
    assert {each.metric for each in series} == metrics


# -- combinations ------------------------------------------------------------------------------------------


def test_everything_is_combined_once_and_one_agent_has_no_straggler() -> None:
    made = job_of(recipe, agents=(1, 8), algorithms=("ADPSGD", "allreduce"), real_agents=(3,))
    names = [contender.name for contender in made.contenders()]
    assert sorted(names) == sorted(
        [f"{a}, {n}[{p}]" for a in ("ADPSGD", "allreduce") for n in ("fast", "slow") for p in (1, 8)]
        + [f"{a}, {n}, straggler[8]" for a in ("ADPSGD", "allreduce") for n in ("fast", "slow")]
        + ["real allreduce, shared_memory[3]", "real allreduce, socket[3]"]
    )
    assert [contender.name for _, contender in made.interleaved()] == names


@pytest.mark.parametrize(("agents", "shards"), [(1, 1), (3, 1), (4, 1), (8, 2), (64, 16)])
def test_every_four_agents_have_a_shard(agents: int, shards: int) -> None:
    servers = ALGORITHMS["parameter server"].servers(agents)
    assert servers is not None and servers.shards == shards
    assert ALGORITHMS["allreduce"].servers(agents) is None


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("agents", [1, 2, 3, 64])
def test_every_algorithm_is_an_experiment_for_any_number_of_agents(algorithm: str, agents: int) -> None:
    experiment = job_of(recipe).experiment(algorithm, agents, "digits")
    assert (experiment.agents, experiment.batch_size) == (agents, 448 // agents)
