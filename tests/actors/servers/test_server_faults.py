"""Claims about runs in which several faults come close together, of servers and of agents: they go on"""

import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import d5ray as d5
from d5ray.actors.group.group import TrainingGroup
from d5ray.errors import AgentError
from tests.actors.looks import Victim, noted, pid_of
from tests.conftest import wait_until
from tests.patience import patience

DIGITS = d5.datasets.load_dataset("digits")


def experiment(servers: d5.Servers, on_failure: str, **changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "mlp", "dataset": DIGITS, "optimizer": d5.optimizers.SGD(0.05), "agents": 3,
        "distributed": d5.optimizers.ASGD(), "servers": servers, "batch_size": 16, "seed": 3, "epochs": 1000,
        "cpus_per_agent": 0.25, "evaluate": False, "on_failure": on_failure, "timeout_seconds": 60.0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(values | changes))


def steps_of(group: TrainingGroup) -> int:
    return max(group._members.steps.values(), default=0)


def strike(group: TrainingGroup, waves: Sequence[Sequence[Victim]], how: int) -> list[Exception]:
    """Train; in every wave these processes get a signal at once. Gives what failed."""
    failed: list[Exception] = []

    def run() -> None:
        try:
            for number, wave in enumerate(waves):
                before = steps_of(group)
                wait_until(lambda before=before: steps_of(group) > before + 20, 90)  # type: ignore[misc]
                pids = [pid_of(group, victim) for victim in wave]
                for pid in pids:
                    os.kill(pid, how)
                deaths = sum(kind == "server" for each in waves[: number + 1] for kind, _ in each)
                wait_until(lambda deaths=deaths: len(noted(group, "server_restored")) >= deaths, 90)  # type: ignore[misc]
            before = steps_of(group)
            wait_until(lambda: steps_of(group) > before + 20, 90)
        except Exception as error:
            failed.append(error)
        finally:
            for rank in group._members.present:
                group._members.control(rank, "stop").remote("the test has seen enough")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    outcome = group.train(progress=False)
    thread.join(patience(200))
    assert outcome.completed
    return failed


WAVES: dict[str, tuple[d5.Servers, list[list[Victim]]]] = {
    "two shards": (
        d5.Servers(shards=2, snapshot_seconds=0.3),
        [[("agent", 1), ("server", 0)], [("server", 1), ("agent", 0)], [("server", 0), ("server", 1)]],
    ),
    "groups": (
        d5.Servers(groups=2, snapshot_seconds=0.3),
        [[("server", 0)], [("server", 1)], [("server", 0), ("server", 2)], [("agent", 2), ("server", 2)]],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", WAVES)
def test_faults_close_together_do_not_end_a_run(name: str) -> None:
    """Agents and servers die at once: the run goes on, and each server that died is said to be back."""
    servers, waves = WAVES[name]
    with d5.launch(experiment(servers, "restart"), quiet=True) as group:
        assert strike(group, waves, signal.SIGKILL) == []
        died = Counter(each["server"] for each in noted(group, "server_died"))
        restored = noted(group, "server_restored")
        assert died == Counter(each["server"] for each in restored)
        assert sum(died.values()) == sum(kind == "server" for wave in waves for kind, _ in wave)
        for each in restored:
            assert each["pushes_lost"] == sum(each["lost"].values()) >= 0


@pytest.mark.full
def test_with_copies_no_acknowledged_push_is_lost() -> None:
    """Servers die, with agents and alone, and no snapshot is taken: every push that an agent knows of is
    there again. Of a server that dies with its copy the pushes since the beginning are counted."""
    servers = d5.Servers(shards=2, replicas=1, snapshot_seconds=1000)
    waves: list[list[Victim]] = [
        [("server", 0), ("agent", 1)],
        [("server", 1)],
        [("server", 0), ("server", 1)],
    ]
    with d5.launch(experiment(servers, "restart"), quiet=True) as group:
        assert strike(group, waves, signal.SIGKILL) == []
        restored = noted(group, "server_restored")
        assert [each.get("pushes_lost", 0) for each in restored[:2]] == [0, 0]
        assert min(each["version"] for each in restored[:2] if "version" in each) > 20
        assert len(restored) == 4
        for each in restored[2:]:
            assert each["pushes_lost"] == sum(each["lost"].values()) > 20


STUCK_SECONDS = 4.0


@pytest.mark.full
def test_a_server_that_is_stopped_for_ever_is_named_and_replaced() -> None:
    """It and no other, though the agents ask others that wait for it, as it holds the copy of another one."""
    victim, plan = "ParameterServer(shard=1)", d5.Faults().stop(server=1, at_seconds=0.7)
    wanted = experiment(d5.Servers(shards=2, replicas=1), "restart", stuck_seconds=STUCK_SECONDS)
    with d5.launch(wanted, quiet=True, faults=plan) as group:
        assert group.train(steps=1500, progress=False).completed
        (stuck,) = noted(group, "server_stuck")
        assert stuck["server"] == victim and STUCK_SECONDS <= stuck["seconds"] < patience(3 * STUCK_SECONDS)
        assert stuck["reason"].startswith(f"{victim} did not answer for ")
        assert stuck["waits"] and all("in an operation" in each for each, *_ in stuck["waits"].values())
        assert [each["server"] for each in noted(group, "server_restored")] == [victim]
        assert not noted(group, "agent_died")


@pytest.mark.full
def test_without_a_policy_a_server_that_is_stopped_ends_the_run_with_its_name() -> None:
    """on_failure='stop': which server gave no sign of life, and who waited."""
    wanted = experiment(d5.Servers(shards=2), "stop", stuck_seconds=STUCK_SECONDS)
    plan = d5.Faults().stop(server=0, at_seconds=0.7)
    with pytest.raises(AgentError) as caught, d5.launch(wanted, quiet=True, faults=plan) as group:
        group.train(steps=100_000, progress=False)
    assert str(caught.value).startswith("ParameterServer(shard=0) did not answer for 4 s while rank")
    assert "waited for it, so the agents were stopped" in str(caught.value)
