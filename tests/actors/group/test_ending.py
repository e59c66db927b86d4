"""Claims about the ends of runs: an actor that dies after the training, and deaths that are too many"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import d5ray as d5
from d5ray.actors.cluster.placement import place_of
from d5ray.actors.group.group import TrainingGroup
from d5ray.errors import AgentError
from d5ray.recipes.engine.checking.checker import violations
from tests.actors.group.test_failures import server_pid
from tests.conftest import wait_until
from tests.patience import patience

STEPS = 4
AT_END = {"agent": "agent_died_at_end", "server": "server_died_at_end", "aggregator": "aggregator_died"}
FAILED = ["the run is failed: only a completed one counts"]  # what `check` says, and nothing else


@pytest.fixture(scope="module", autouse=True)
def ray_ends() -> Iterator[None]:
    """One embedded Ray for the module's launches, and none afterwards."""
    yield
    d5.shutdown()


def launched(rule: d5.DistributedOptimizer, on_failure: str, max_failures: int = -1) -> TrainingGroup:
    servers = d5.Servers(shards=1) if isinstance(rule, d5.optimizers.ASGD) else None
    made = d5.Experiment(
        "mlp", "digits", d5.optimizers.SGD(0.05), rule, agents=2, servers=servers, batch_size=16, seed=3,
        cpus_per_agent=0.25, on_failure=on_failure, evaluate=False, max_failures=max_failures,
    )  # fmt: skip
    return d5.launch(made, quiet=True)


def kill(group: TrainingGroup, victim: str) -> None:
    """SIGKILL to one of the run's actors, and wait until it is gone."""
    if victim == "agent":
        pid = group.places[0].pid
    elif victim == "server":
        pid = server_pid(group, 0)
    else:
        actor = group.aggregator.actor
        pid = ray.get(actor.__ray_call__.remote(place_of), timeout=patience(20)).pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}/fd").exists(), 10)


def broken(run: d5.Run) -> list[str]:
    """The rules that it breaks, beside that it is of no recipe."""
    return [text for text in violations(run) if "comes from no recipe" not in text]


def said(run: d5.Run) -> list[tuple[str, int, dict[str, Any]]]:
    rows = run.tables()["events"].to_pylist()
    return [(r["name"], r["rank"], json.loads(r["detail"])) for r in rows if r["name"] in AT_END.values()]


CASES = [
    pytest.param(d5.optimizers.AllreduceSGD(), "agent", id="consistent"),
    *(
        pytest.param(d5.optimizers.ASGD(), victim, id=f"ASGD-{victim}", marks=pytest.mark.full)
        for victim in ("agent", "server", "aggregator")
    ),
]


@pytest.mark.parametrize(("rule", "victim"), CASES)
def test_a_death_after_the_training_leaves_a_complete_run(rule: d5.DistributedOptimizer, victim: str) -> None:
    """With a policy that goes on: all rows of all steps, a survivor's hash, and an event that says it."""
    with launched(rule, "continue") as group:
        group.train(STEPS, progress=False)
        before = group.metrics().num_rows
        kill(group, victim)
    run = d5.Run(group.folder)
    row = run.row
    assert (row["status"], row["steps"]) == ("completed", STEPS)
    assert row["parameters_sha256"] is not None and row["rows"] >= before
    ((event, rank, detail),) = said(run)
    assert event == AT_END[victim]
    if victim == "agent":
        own = run.tables()["samples"].to_pandas().query("rank == 0 and agent == 'TrainingAgent(rank=0)'")
        assert (rank, detail["rows"]) == (0, len(own))
        assert sorted(own.query("metric == 'loss'").step) == list(range(STEPS))
        assert detail["lost"] == ("nothing" if rule.one_model else "its parameters")
    assert broken(run) == []


@pytest.mark.full
@pytest.mark.parametrize("victim", ["agent", "server"])
def test_a_death_after_the_training_ends_the_run_as_failed_where_the_policy_is_to_stop(victim: str) -> None:
    """close() raises, and names who died; the run's row is complete, and its rows are all there."""
    group = launched(d5.optimizers.ASGD(), "stop")
    group.train(STEPS, progress=False)
    before = group.metrics().num_rows
    kill(group, victim)
    who = "TrainingAgent(rank=0)" if victim == "agent" else "ParameterServer(shard=0)"
    with pytest.raises(AgentError) as caught:
        group.close()
    assert who in str(caught.value)
    run = d5.Run(group.folder)
    row = run.row
    assert (row["status"], row["steps"], row["verdict"]) == ("failed", STEPS, None)
    assert who in row["stop_reason"] and row["ended"] is not None and row["rows"] >= before
    assert broken(run) == FAILED


@pytest.mark.full
def test_a_run_that_fails_in_its_training_says_the_steps_that_arrived() -> None:
    """A server dies under "stop": the steps of its row are those of its rows."""
    group = launched(d5.optimizers.ASGD(), "stop")
    with pytest.raises(AgentError, match="ParameterServer"), group:
        group.train(STEPS, progress=False)
        kill(group, "server")
        group.train(STEPS, progress=False)
    run = d5.Run(group.folder)
    assert run.row["status"] == "failed" and run.row["steps"] >= STEPS
    assert broken(run) == FAILED


class DiesAtItsThirdStep(d5.DistributedOptimizer):
    """Synchronous SGD whose second agent dies at its third step, whenever it is started."""

    def __init__(self) -> None:
        self.calls = 0

    def step(self, batch: d5.Batch) -> None:
        gradient = self.gradient(batch)
        self.calls += 1
        if self.communication.rank == 1 and self.calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        self.communication.allreduce(gradient, "mean")
        self.apply(gradient)


@pytest.mark.full
def test_a_run_survives_max_failures_deaths_and_no_other() -> None:
    """Two of an agent that dies every two steps: the third ends the run, which has done six steps."""
    group = launched(DiesAtItsThirdStep(), "restart", max_failures=2)
    with pytest.raises(AgentError, match=r"survives max_failures=2, and this was death number 3"), group:
        group.train(40, progress=False)
    run = d5.Run(group.folder)
    deaths = [r for r in run.tables()["events"].to_pylist() if r["name"] == "agent_died"]
    assert len(deaths) == 3 and run.row["steps"] == 6
    assert broken(run) == FAILED


class DiesAtItsFirstStep(DiesAtItsThirdStep):
    """The same, at its first step."""

    def __init__(self) -> None:
        self.calls = 2


@pytest.mark.full
def test_a_run_that_makes_no_step_between_deaths_ends() -> None:
    """Any number of failures is allowed, and nobody ends a step: the run ends after 3 × agents + 3 deaths."""
    group = launched(DiesAtItsFirstStep(), "restart")
    with pytest.raises(AgentError, match="since step 0 was done, and no further one was"), group:
        group.train(40, progress=False)
    run = d5.Run(group.folder)
    deaths = [r for r in run.tables()["events"].to_pylist() if r["name"] == "agent_died"]
    assert len(deaths) == 3 * 2 + 3 + 1
    assert (run.row["status"], run.row["steps"]) == ("failed", 0)
