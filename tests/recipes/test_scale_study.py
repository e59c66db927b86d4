"""Claims about the study of scale: times and formulas are closed forms, and nothing is left out."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.store import list_runs
from d5ray.recipes import scale_study as recipe
from d5ray.recipes.engine.comparisons.contenders import RankSeries
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.jobs.predictions import AllreduceExchange, ServerExchange
from d5ray.recipes.jobs.scaled import ALGORITHMS
from d5ray.recipes.jobs.scaled_runs import RealExchange, Scaled
from d5ray.recipes.jobs.scaling import ScaleStudy
from tests.conftest import d5ray

BYTES = 4 * 76_810  # of the perceptron's gradient
SLOW = d5.simulation.UniformLinks(1e-3, 12.5e6)
STEPS = 3  # in an epoch


def job(**changes: Any) -> ScaleStudy:
    """The recipe's, with other values."""
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    assert isinstance(made, ScaleStudy)
    return replace(made, **changes)


def measured(contender: Scaled, tmp_path: Path, **changes: Any) -> list[RankSeries]:
    """What a contender measures, in a folder of its own."""
    folder = tmp_path / contender.name
    folder.mkdir()
    return contender.measure(job(**changes), folder)


def found(series: list[RankSeries], metric: str, rank: int = 0) -> list[float]:
    """The values of one metric at one rank."""
    (values,) = (one.values for one in series if (one.metric, one.rank) == (metric, rank))
    return [value for value in values if value is not None]


# -- formulas ----------------------------------------------------------------------------------------------


def test_the_closed_forms_are_those_of_the_literature() -> None:
    """By hand: 4 agents, 1 MB, 1 ms, 10 ns a byte. One server: 2 + 80 ms; two: 2 + 40; allreduce: 4 + 15."""
    latency, seconds_per_byte = 1e-3, 1e-8
    for exchange, agents, payload, seconds in (
        (ServerExchange(), 4, 1e6, 82e-3),
        (ServerExchange(2), 4, 1e6, 42e-3),
        (AllreduceExchange(), 4, 1e6, 19e-3),
        (AllreduceExchange(), 8, 0, 6e-3),
        (AllreduceExchange(), 1, 1e6, 0),
    ):
        assert exchange.seconds(agents, payload, latency, seconds_per_byte) == pytest.approx(seconds)


@pytest.mark.parametrize(("agents", "shards"), [(1, 1), (3, 1), (4, 1), (8, 2), (64, 16)])
def test_every_four_agents_have_a_shard(agents: int, shards: int) -> None:
    servers = ALGORITHMS["parameter server"].servers(agents)
    assert servers is not None and servers.shards == shards
    assert ALGORITHMS["allreduce"].servers(agents) is None


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


def test_only_exchanges_that_nobody_waits_for_are_compared_with_a_formula(tmp_path: Path) -> None:
    for number, contender in enumerate(
        (
            Scaled("allreduce", "fast", True, 2),
            Scaled("allreduce", "fast", False, 1),
            Scaled("ADPSGD", "fast", False, 2),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        metrics = {series.metric for series in measured(contender, folder, epochs=1)}
        assert metrics == {"test_accuracy", "elapsed_time", "time_to_accuracy", "bytes_sent"}


# -- combinations ------------------------------------------------------------------------------------------


def test_everything_is_combined_once_and_one_agent_has_no_straggler() -> None:
    made = job(agents=(1, 8), algorithms=("ADPSGD", "allreduce"), real_agents=(3,))
    names = [contender.name for contender in made.contenders()]
    assert sorted(names) == sorted(
        [f"{a}, {n}[{p}]" for a in ("ADPSGD", "allreduce") for n in ("fast", "slow") for p in (1, 8)]
        + [f"{a}, {n}, straggler[8]" for a in ("ADPSGD", "allreduce") for n in ("fast", "slow")]
        + ["real allreduce, shared_memory[3]", "real allreduce, socket[3]"]
    )
    assert [contender.name for _, contender in made.turns()] == names


def test_by_default_all_algorithms_are_studied() -> None:
    contenders = job().contenders()
    simulated = [c for c in contenders if isinstance(c, Scaled)]
    assert len(simulated) == 6 * 2 * (4 + 3) and {c.algorithm for c in simulated} == set(ALGORITHMS)
    assert len([c for c in contenders if isinstance(c, RealExchange)]) == 3 * 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("agents", [1, 2, 3, 64])
def test_every_algorithm_is_an_experiment_for_any_number_of_agents(algorithm: str, agents: int) -> None:
    experiment = job().experiment(algorithm, agents, "digits")
    assert (experiment.agents, experiment.batch_size) == (agents, 448 // agents)


# -- the recipe --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"agents": (4, 4)}, "different numbers"),
        ({"agents": 4}, "agents"),
        ({"agents": (0,)}, "agents"),
        ({"agents": (1000,)}, "448 for 1000 agents"),
        ({"real_agents": (2.0,)}, "real_agents"),
        ({"algorithms": ("alreduce",)}, "did you mean 'allreduce'"),
        ({"algorithms": "allreduce"}, "names such as"),
        ({"algorithms": ()}, "comparisons"),
        ({"networks": {"fast": 7}}, "UniformLinks"),
        ({"networks": ()}, "networks"),
        ({"epochs": 0}, "epochs"),
        ({"accuracy": 0}, "accuracy"),
        ({"factor": 1}, "factor"),
        ({"sample_seconds": -1}, "sample_seconds"),
        ({"model": "mpl"}, "did you mean 'mlp'"),
        ({"comparisons": ((RealExchange("allreduce", "socket", 2),),)}, "leave them out"),
    ],
)
def test_a_wrong_value_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        job(**change)


def test_a_study_without_real_agents_needs_no_ray() -> None:
    assert job(real_agents=()).connect(None, {}, quiet=True).address == ""
    with pytest.raises(ConfigurationError, match="outside Ray"):
        job(real_agents=()).connect("10.0.0.1:6379", {}, quiet=True)


@pytest.mark.slow
def test_the_recipe_gives_its_tables_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two algorithms, two sizes: every number is found by SQL, and the tables fit 80 columns."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    few = (
        "agents=(1, 4)",
        "algorithms=('allreduce', 'parameter server')",
        "epochs=2",
        "real_agents=(2,)",
        "real_steps=12",
    )
    done = d5ray("run", "scale_study", *(word for each in few for word in ("--set", each)), seconds=280)
    assert done.code == 0, done
    (run,) = list_runs(tmp_path / "runs")
    times = sql(run, "select scope, value from samples where metric = 'time_to_accuracy'").to_pylist()
    assert len(times) == 2 * 2 * (2 + 1) and {row["value"] for row in times} == {math.inf}
    real = sql(
        run,
        "select scope, count(*) n, min(value) least from samples where metric = 'exchange_time' "
        "and scope like 'real %' group by scope order by scope",
    ).to_pylist()
    assert [(row["scope"], row["n"]) for row in real] == [
        ("real allreduce, socket[2]", 12),
        ("real allreduce, shared_memory[2]", 12),
        ("real parameter server, shared_memory[2]", 12),
    ]
    assert all(0 < row["least"] < 1 for row in real)
    for words in ("virtual time to accuracy (s)", "1 agent", "4 agents", "found/predicted", "> "):
        assert words in done.out
    assert not done.left()
