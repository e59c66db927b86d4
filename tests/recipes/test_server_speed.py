"""Claims about comparing parameter servers: every push counts once, all are timed alike, service is timed."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from benchmarks.server_speed import recipe as server_speed
from benchmarks.server_speed.baselines import AsDocumented, ServiceAndUpdate, ThroughD5ray, ThroughSnapshots
from benchmarks.server_speed.job import ServerUpdates, check_parameters
from benchmarks.server_speed.pushing_agents import (
    FEWEST,
    LEARNING_RATE,
    DocumentedServer,
    DocumentedWorker,
    Pushed,
    Pusher,
)
from benchmarks.server_speed.service import ServiceTimes, alternately
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.server_rules import Descend
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.parameter_server.shard_service import ShardServer
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import AgentError, ConfigurationError
from d5ray.metrics.definitions.rates import UPDATE_RATE
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.store import list_runs
from d5ray.recipes.engine.comparisons.contenders import AnyContender
from d5ray.recipes.engine.comparisons.timing import FEWEST as FEWEST_VALUES
from d5ray.recipes.engine.recipe import Recipe
from tests.conftest import d5ray
from tests.together import together

SIZES = ("4 kB", "400 kB")
IN_RAY: list[AnyContender] = [ThroughD5ray(2), AsDocumented(2), ThroughSnapshots(2)]
JOB = ServerUpdates(comparisons=(tuple(IN_RAY),), sizes=SIZES, seconds=0.05)


@pytest.fixture(scope="module")
def embedded_ray() -> Iterator[None]:
    """One embedded Ray for the module's groups, and none afterwards."""
    JOB.connect(None, {}, quiet=True)
    yield
    d5.shutdown()


# -- whoever pushes ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("embedded_ray")
@pytest.mark.parametrize("contender", IN_RAY, ids=lambda contender: str(contender.name))
def test_a_group_gives_every_agents_rate_at_every_size(contender: AnyContender, tmp_path: Path) -> None:
    """After the parameters were checked to be those of all pushes: one rate for each agent and size."""
    measured = contender.measure(JOB, tmp_path)
    assert [(series.at, series.rank) for series in measured] == [
        (size, rank) for size in SIZES for rank in (0, 1)
    ]
    for series in measured:
        (rate,) = series.values
        assert (series.metric, series.unit) == (UPDATE_RATE, "1/s")
        assert series.loops >= FEWEST and rate is not None
        assert 0.04 < series.loops / rate < 20  # about as long as it was to last


def test_agents_of_d5rays_server_push_and_pull_as_often_as_they_say() -> None:
    """Two agents in threads, two shards: x = −η (1 n₀ + 2 n₁), pulled by both."""
    resolved = ResolvedServers(
        Servers(shards=2), d5.servers.Asynchronous(), Descend(), d5.optimizers.SGD(LEARNING_RATE)
    )
    secret = Secret.new()
    servers = [
        ShardServer(resolved, range(2), secret=secret, node="here", host="127.0.0.1") for _ in range(2)
    ]
    agents = [Pusher(rank) for rank in range(2)]
    for agent in agents:
        agent.join([server.address for server in servers], "here", secret, 1000)
    done = together(lambda rank: agents[rank].update(0.02), 2)
    expected = -LEARNING_RATE * (done[0].updates + 2 * done[1].updates)
    assert [agent.leave() for agent in agents] == [(expected, expected)] * 2
    assert all(own.updates >= FEWEST and own.seconds >= 0.02 for own in done)
    for server in servers:
        server.close()


def test_the_documented_server_applies_the_sum_of_the_gradients_that_come_together() -> None:
    """−η (g₀ + g₁) of different gradients; a worker takes the weights over and gives its own gradient."""
    server, workers = DocumentedServer(), [DocumentedWorker(rank) for rank in range(2)]
    server.begin(5)
    for worker in workers:
        worker.begin(5)
    gradients = [worker.compute_gradients(np.full(5, 7, np.float32)) for worker in workers]
    assert [worker.weights.tolist() for worker in workers] == [[7.0] * 5] * 2
    weights = server.apply_gradients(*gradients)
    np.testing.assert_array_equal(weights, np.full(5, -LEARNING_RATE * 3, np.float32))
    np.testing.assert_array_equal(server.apply_gradients(gradients[0]), np.full(5, -LEARNING_RATE * 4))
    assert server.get_weights() is weights


@pytest.mark.parametrize("pushes", [(10, 4), (9, 5), (11, 5)])
def test_a_server_that_lost_or_doubled_a_push_is_not_timed(pushes: tuple[int, int]) -> None:
    """10 pushes of rank 0 and 5 of rank 1 make −20 η; any other number is refused."""
    done = [[Pushed(3, 0.1), Pushed(3, 0.1)], [Pushed(7, 1.0), Pushed(2, 1.0)]]
    right = -LEARNING_RATE * 20
    check_parameters("x[2]", [(right, right)], done, LEARNING_RATE)
    wrong = -LEARNING_RATE * (pushes[0] + 2 * pushes[1])
    with pytest.raises(AgentError, match=r"x\[2\] ends with .* instead of -0\.01953.*: nothing is measured"):
        check_parameters("x[2]", [(right, right), (wrong, right)], done, LEARNING_RATE)


# -- the service of one push -------------------------------------------------------------------------------


def test_the_service_of_a_push_takes_about_as_long_as_its_update() -> None:
    """At 4 MB, where arithmetic outweighs what surrounds it: neither nothing nor a multiple."""
    served, bare = ServiceTimes({}, seconds=0.3).of(1_000_000)
    assert served.loops == bare.loops >= 1
    assert len(served.seconds) == len(bare.seconds) >= FEWEST_VALUES
    assert 0.4 < np.median(served.seconds) / np.median(bare.seconds) < 4


def test_two_sides_are_timed_in_turn_and_first_alternately() -> None:
    """2 ms against 1 ms, of which 10 fill a value: a warm-up of each, then ab, ba, ab, …"""
    turns: list[tuple[str, int]] = []

    def side(word: str, seconds: float) -> Any:
        def turn(loops: int) -> float:
            turns.append((word, loops))
            time.sleep(seconds if len(turns) <= 2 else 0)
            return seconds

        return turn

    first, second = alternately(side("a", 0.002), side("b", 0.001), seconds=1e-6)
    assert turns[:2] == [("a", 1), ("b", 1)]
    assert "".join(word for word, _ in turns[2:]) == "ab" + "ba" + "ab" + "ba" + "ab"
    assert {loops for _, loops in turns[2:]} == {first.loops} == {second.loops} == {10}
    assert (first.seconds, second.seconds) == ([0.002] * 5, [0.001] * 5)


# -- the recipe --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sizes": ("1",)}, "integer and a unit"),
        ({"sizes": ("6 B",)}, "float32"),
        ({"sizes": ()}, "sizes"),
        ({"sizes": "1 MB"}, "sizes"),
        ({"seconds": 0}, "seconds"),
        ({"comparisons": ((ThroughD5ray(2), ThroughD5ray(2)),)}, r"d5ray\[2\] twice"),
    ],
)
def test_a_wrong_value_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        replace(JOB, **change)


def test_every_criterion_is_about_what_is_measured_and_everybody_is_in_one() -> None:
    parts = (server_speed.FIXED, server_speed.MUTABLE, server_speed.METRICS)
    job = Recipe.of(*parts, name="x").made()
    metrics = [criterion.metric for criterion in server_speed.METRICS]
    named = {vars(m)[key] for m in metrics for key in ("ours", "base", "contender") if key in vars(m)}
    assert named == {contender.name for contender in job.contenders()}
    assert {vars(m)["size"] for m in metrics} == set(job.sizes)
    assert len({metric.label for metric in metrics}) == len(metrics) == 15


@pytest.mark.slow
def test_the_recipe_measures_everybody_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round at one size: rates of every contender's agents, both sides of a push, an open verdict."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    few = ("--set", "sizes=('40 kB',)", "--set", "seconds=0.1", "--set", "pairs=1", "--json")
    done = d5ray("run", "benchmarks/server_speed", *few, seconds=200)
    assert (done.code, done.json["verdict"]) == (2, "INCONCLUSIVE"), done
    (run,) = list_runs(tmp_path / "runs")
    counted = sql(run, "select scope, count(distinct rank) ranks from samples where value > 0 group by all")
    assert {row["scope"]: row["ranks"] for row in counted.to_pylist()} == {
        **{f"{c.name} 40 kB": c.processes for agents in (2, 4) for c in (
            ThroughD5ray(agents), AsDocumented(agents), ThroughSnapshots(agents)
        )},
        f"{ServiceAndUpdate().name} in the shard 40 kB": 1,
        f"{ServiceAndUpdate().name} bare update 40 kB": 1,
    }  # fmt: skip
    assert not done.left()
