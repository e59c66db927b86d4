"""Claims about the ends of runs: an actor that dies after the training, and deaths that are too many"""

import json
import os
import signal
import threading
from pathlib import Path

import pytest

import d5ray as d5
from d5ray.actors.group.group import TrainingGroup
from d5ray.errors import AgentError
from tests.actors.looks import Victim, pid_of
from tests.checked import assert_breaks
from tests.conftest import wait_until

STEPS = 4
FAILED = "the run is failed: only a completed one counts"  # what `check` says, and nothing else


def launched(rule: d5.DistributedOptimizer, on_failure: str, max_failures: int = -1) -> TrainingGroup:
    servers = d5.Servers(shards=1) if isinstance(rule, d5.optimizers.ASGD) else None
    made = d5.Experiment(
        "mlp", "digits", d5.optimizers.SGD(0.05), rule, agents=2, servers=servers, batch_size=16, seed=3,
        cpus_per_agent=0.25, evaluate=False, faults=d5.faults.FaultPolicy(on_failure, 1, max_failures),
    )  # fmt: skip
    return d5.launch(made, quiet=True)


def kill(group: TrainingGroup, *victims: Victim) -> None:
    """SIGKILL to some of the run's actors, and wait until they are gone."""
    pids = [pid_of(group, victim) for victim in victims]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in pids), 10)


@pytest.mark.parametrize(
    ("rule", "victims"),
    [
        pytest.param(d5.optimizers.AllreduceSGD(), [("agent", 0)], id="consistent"),
        pytest.param(d5.optimizers.ASGD(), [("agent", 0), ("server", 0)], id="ASGD", marks=pytest.mark.full),
    ],
)
def test_a_death_after_the_training_leaves_a_complete_run(
    rule: d5.DistributedOptimizer, victims: list[Victim]
) -> None:
    """With a policy that goes on: all rows of all steps, a survivor's hash, and an event that says it."""
    with launched(rule, "continue") as group:
        group.train(STEPS, progress=False)
        before = group.metrics().num_rows
        kill(group, *victims)
    run = d5.Run(group.folder)
    row = run.row
    assert (row["status"], row["steps"]) == ("completed", STEPS)
    assert row["parameters_sha256"] is not None and row["rows"] >= before
    events = {each["name"]: each for each in run.tables()["events"].to_pylist()}
    assert all(f"{kind}_died_at_end" in events for kind, _ in victims)
    died = events["agent_died_at_end"]
    detail = json.loads(died["detail"])
    own = run.tables()["samples"].to_pandas().query("rank == 0 and agent == 'TrainingAgent(rank=0)'")
    assert (died["rank"], detail["rows"]) == (0, len(own))
    assert sorted(own.query("metric == 'loss'").step) == list(range(STEPS))
    assert detail["lost"] == ("nothing" if rule.one_model else "its parameters")
    assert_breaks(run)


@pytest.mark.full
def test_a_death_after_the_training_ends_the_run_as_failed_where_the_policy_is_to_stop() -> None:
    """close() raises, and names who died; the run's row is complete, and its rows are all there."""
    group = launched(d5.optimizers.ASGD(), "stop")
    group.train(STEPS, progress=False)
    before = group.metrics().num_rows
    kill(group, ("server", 0))
    with pytest.raises(AgentError, match=r"ParameterServer\(shard=0\)"):
        group.close()
    run = d5.Run(group.folder)
    row = run.row
    assert (row["status"], row["steps"], row["verdict"]) == ("failed", STEPS, None)
    assert "ParameterServer(shard=0)" in row["stop_reason"] and row["ended"] is not None
    assert row["rows"] >= before
    assert_breaks(run, FAILED)


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


def held() -> tuple[int, int]:
    """The descriptors and threads of this process."""
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


@pytest.mark.full
def test_a_run_survives_max_failures_deaths_and_no_other() -> None:
    """Two of an agent that dies every two steps: the third ends the run, which has done six steps. The driver
    keeps no descriptor and no thread of any of them."""
    with launched(d5.optimizers.AllreduceSGD(), "restart") as calm:
        calm.train(2, progress=False)
    before = held()
    group = launched(DiesAtItsThirdStep(), "restart", max_failures=2)
    with pytest.raises(AgentError, match=r"survives max_failures=2, and this was death number 3"), group:
        group.train(40, progress=False)
    run = d5.Run(group.folder)
    deaths = [r for r in run.tables()["events"].to_pylist() if r["name"] == "agent_died"]
    assert len(deaths) == 3 and run.row["steps"] == 6
    assert_breaks(run, FAILED)
    wait_until(lambda: all(now <= was + 4 for was, now in zip(before, held(), strict=True)), 10)


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
