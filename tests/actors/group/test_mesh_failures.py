"""Claims about meshes on Ray whose agents and servers die: a death is its replica's affair"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.actors.group.group import TrainingGroup
from d5ray.agent.mesh import shares_of
from d5ray.distributed.checkpoints.folder import CheckpointFolder
from d5ray.errors import AgentError
from d5ray.recipes.engine.checking.agreements import agreements
from d5ray.recipes.engine.checking.folder import Folder
from tests.actors.group.test_replacing import SAMPLES, Pace, samples_by_epoch, train_until
from tests.agents import agents_in_threads
from tests.conftest import wait_until
from tests.distributed.regrouped import Regrouped
from tests.patience import patience
from tests.together import together

DIGITS = d5.datasets.load_dataset("digits")
STEPS = 14


@pytest.fixture(scope="module", autouse=True)
def ray_ends() -> Iterator[None]:
    """One embedded Ray for the module's launches, and none afterwards."""
    yield
    d5.shutdown()


class DieOnce(d5.Event):
    """SIGKILL to agents before their step, each once; a file in a folder says that it was."""

    def __init__(self, folder: Path, step: int, *agents: int) -> None:
        self.folder, self.step, self.agents = str(folder), step, agents

    def before_step(self, moment: d5.events.Moment) -> None:
        died = Path(self.folder) / f"died-{moment.rank}"
        if moment.rank in self.agents and moment.step == self.step and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def experiment(**values: Any) -> d5.Experiment:
    given: dict[str, Any] = {
        "model": "mlp", "dataset": DIGITS, "optimizer": d5.optimizers.Adam(0.003), "mesh": d5.Mesh(2, 2),
        "executor": "numpy", "batch_size": 16, "seed": 3, "evaluate": False, "cpus_per_agent": 0.25,
        "timeout_seconds": 40.0, "model_kwargs": {"hidden": (24,)},
    }  # fmt: skip
    return d5.Experiment(**(given | values))


def undisturbed(wanted: d5.Experiment, steps: int = STEPS) -> dict[str, Any]:
    """The network that agents in threads of this process train, of which none dies."""
    calm = replace(wanted, events=(), on_failure="stop")
    with agents_in_threads(calm, DIGITS) as (agents, _):
        outcomes = together(lambda rank: agents[rank].train(steps), len(agents))
        assert all(outcome.completed for outcome in outcomes), outcomes
        return shares_of(calm, DIGITS).whole([agent.parameters() for agent in agents])


def told(group: TrainingGroup) -> list[tuple[str, dict[str, Any]]]:
    """(name, detail) of what the driver noted, beside the servers' loads."""
    rows = sorted(group.tables()["events"].to_pylist(), key=lambda row: row["t_mono"])
    return [
        (row["name"], {"rank": row["rank"], "step": row["step"]} | json.loads(row["detail"] or "{}"))
        for row in rows
        if row["agent"] == "driver" and row["name"] != "load"
    ]


def broken(group: TrainingGroup) -> list[str]:
    """What `d5ray check` says of the agreements in the closed run."""
    run = d5.Run(group.folder)
    return list(agreements(Folder(run, run.row, run.tables())))


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.array_equal(found[name], value), name


@pytest.mark.full
def test_the_other_replica_goes_on_and_the_run_says_so(tmp_path: Path) -> None:
    """An agent of replica 1 is killed: the other of it ends, replica 0 trains on alone."""
    wanted = experiment(on_failure="continue", events=(DieOnce(tmp_path, 6, 3),))
    with d5.launch(wanted, quiet=True) as group:
        pids = [place.pid for place in group.places]
        outcome = group.train(STEPS, progress=False)
        assert outcome.completed and outcome.step == STEPS
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids[2:]), 20)
        events = told(group)
        names = [name for name, _ in events]
        assert names == [
            "agent_died", "replica_lost", "group_formed_again", "agreed", "agreed", "agents_changed",
        ]  # fmt: skip
        lost = events[1][1]
        assert (lost["replica"], lost["agents"], lost["died"], lost["step"]) == (1, [2, 3], [3], 6)
        assert [detail["members"] for name, detail in events if name == "agreed"] == [[0], [1]]
        network = group.network_parameters(0)
        with pytest.raises(AgentError, match="replica 1 of 2 is not there"):
            group.network_parameters(1)
        samples = group.metrics().to_pandas().query("metric == 'loss'")
        assert samples[samples["rank"] < 2].groupby("rank").step.count().tolist() == [STEPS] * 2
    assert broken(group) == []
    assert any(not np.array_equal(network[name], value) for name, value in undisturbed(wanted).items())


@pytest.mark.full
def test_a_replica_that_is_started_again_takes_the_others_state(tmp_path: Path) -> None:
    """The step that the death interrupted is done again by all: the end is that of an undisturbed run."""
    wanted = experiment(on_failure="restart", events=(DieOnce(tmp_path, 6, 2),))
    with d5.launch(wanted, quiet=True) as group:
        outcome = group.train(STEPS, progress=False)
        assert outcome.completed and outcome.step == STEPS
        events = told(group)
        assert [name for name, _ in events] == [
            "agent_died", "replica_restarted", "agent_restarted", "agreed", "agreed", "agents_changed",
        ]  # fmt: skip
        assert [detail["new"] for name, detail in events if name == "agreed"] == [[2], [3]]
        networks = [group.network_parameters(replica) for replica in range(2)]
    assert broken(group) == []
    expected = undisturbed(wanted)
    for network in networks:
        assert_same(network, expected)


def as_in_threads(group: TrainingGroup, steps: int) -> None:
    """All replicas have the bits of agents in threads that were as many, at the same steps."""
    wanted = replace(group.experiment, events=(), on_failure="continue")
    calm = Regrouped(wanted)
    calm.join()
    done = 0
    for name, detail in told(group):
        if name == "agents_changed":
            calm.train(detail["step"] - done)
            calm.change(detail["agents"])
            done = detail["step"]
    calm.train(steps - done)
    expected = shares_of(wanted, DIGITS).whole([agent.parameters() for agent in calm.agents])
    calm.close()
    for replica in range(len(calm.agents) // calm.each):
        assert_same(group.network_parameters(replica), expected)


@pytest.mark.full
def test_the_other_replica_trains_on_and_takes_in_a_new_one(tmp_path: Path) -> None:
    """An agent of replica 1 is killed: replica 0 does steps alone, then a whole replica comes, with its state
    stage by stage; nothing is lost of the data."""
    wanted = experiment(on_failure="replace", events=(Pace(), DieOnce(tmp_path, 6, 3)), epochs=400)
    with d5.launch(wanted, quiet=True) as group:
        train_until(group, "agent_joined", 2)
        events = told(group)
        formed, together_again = [detail for name, detail in events if name == "agents_changed"]
        assert (formed["members"], formed["step"]) == ([0, 1], 6)
        assert together_again["members"] == [0, 1, 2, 3] and together_again["step"] > 16
        assert [(d["rank"], d["step"]) for name, d in events if name == "agent_joined"] == [
            (2, together_again["step"]), (3, together_again["step"]),
        ]  # fmt: skip
        assert [d["new"] for name, d in events if name == "agreed"] == [[], [], [2], [3]]
        as_in_threads(group, group.train(100, progress=False).step)
        assert set(samples_by_epoch(group)) == {SAMPLES}
    assert broken(group) == []


@pytest.mark.slow
def test_a_mesh_is_resized_by_whole_replicas() -> None:
    """Without a policy for deaths: to one replica of two parts, and to two again, by the run's name."""
    split = d5.networks.FullyConnectedSplit()
    wanted = experiment(mesh=d5.Mesh(2, 1, parts=2, split=split), events=(Pace(),), epochs=400)
    with d5.launch(wanted, quiet=True) as group:
        threading.Timer(0.3, d5.resize, (group,), {"agents": 2}).start()
        train_until(group, "agents_changed", 1)
        assert [d["rank"] for name, d in told(group) if name == "agent_left"] == [3, 2]
        d5.resize(group.run_id, agents=4)
        train_until(group, "agent_joined", 2)
        as_in_threads(group, group.train(100, progress=False).step)
        assert set(samples_by_epoch(group)) == {SAMPLES}
    assert broken(group) == []


@pytest.mark.slow
@pytest.mark.parametrize("saved", [True, False], ids=["checkpoint", "none yet"])
@pytest.mark.parametrize("mesh", [d5.Mesh(1, 2), d5.Mesh(2, 2)], ids=["one replica", "two replicas"])
def test_where_no_replica_is_whole_all_go_back(mesh: d5.Mesh, saved: bool, tmp_path: Path) -> None:
    """To the run's last checkpoint, by itself; where there is none yet, to the beginning."""
    event = d5.events.Checkpoint(tmp_path / "saved", every_steps=4 if saved else 10)
    deaths = DieOnce(tmp_path, 6, *((1,) if mesh.replicas == 1 else (1, 2)))
    wanted = experiment(mesh=mesh, on_failure="restart", events=(event, deaths))
    with d5.launch(wanted, quiet=True) as group:
        outcome = group.train(STEPS, progress=False)
        assert outcome.completed and outcome.step == STEPS
        events = told(group)
        assert {d["step"] for name, d in events if name == "replica_restarted"} == {4 if saved else 0}
        networks = [group.network_parameters(replica) for replica in range(mesh.replicas)]
    assert broken(group) == []
    expected = undisturbed(wanted)
    for network in networks:
        assert_same(network, expected)


@pytest.mark.slow
def test_two_deaths_in_one_replica_and_the_last_replica(tmp_path: Path) -> None:
    """Both agents of replica 0 at once: one replica is lost, not two. Then the last one: a clear error."""
    (tmp_path / "last").mkdir()
    both, last = DieOnce(tmp_path, 4, 0, 1), DieOnce(tmp_path / "last", 9, 4)
    wanted = experiment(mesh=d5.Mesh(3, 2), on_failure="continue", events=(both, last))
    other = replace(wanted, events=(both, last, DieOnce(tmp_path / "last", 9, 2)))
    with d5.launch(wanted, quiet=True) as group:
        assert group.train(STEPS, progress=False).completed
        lost = [(d["replica"], d["died"]) for name, d in told(group) if name == "replica_lost"]
    assert lost == [(0, [0, 1]), (2, [4])]
    for file in tmp_path.rglob("died-*"):
        file.unlink()
    with (
        pytest.raises(AgentError, match=r"died, of the last replica that was whole"),
        d5.launch(other, quiet=True) as group,
    ):
        group.train(STEPS, progress=False)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [d5.optimizers.ASGD(), d5.optimizers.ParameterServerSGD()], ids=repr)
def test_servers_of_stages_go_on_with_the_replicas_that_are_left(
    rule: d5.DistributedOptimizer, tmp_path: Path
) -> None:
    """Every stage has servers of its own, and none waits for the replica that is gone."""
    wanted = experiment(
        distributed=rule, optimizer=d5.optimizers.SGD(0.05), servers=d5.Servers(2, snapshot_seconds=0.2),
        on_failure="continue", events=(DieOnce(tmp_path, 6, 1),),
    )  # fmt: skip
    with d5.launch(wanted, quiet=True) as group:
        outcome = group.train(60, progress=False)
        assert outcome.completed and outcome.step == 60
        lost = [(d["replica"], d["agents"]) for name, d in told(group) if name == "replica_lost"]
        assert lost == [(0, [0, 1])]
        network = group.network_parameters(1)
        assert all(np.isfinite(value).all() for value in network.values())


DRIVER = """
import sys
import d5ray as d5
from tests.actors.group.test_mesh_failures import experiment
event = d5.events.Checkpoint(sys.argv[1], every_steps=3, keep=0)
with d5.launch(experiment(events=(event,)), quiet=True) as group:
    group.train(100_000, progress=False)
"""


@pytest.mark.slow
def test_a_mesh_whose_driver_was_killed_is_resumed_bit_for_bit(tmp_path: Path) -> None:
    """SIGKILL to the driver; another one goes on from the last checkpoint that was complete."""
    folder = CheckpointFolder(str(tmp_path))
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)], stdout=log, stderr=log, start_new_session=True
    )
    try:
        wait_until(lambda: len(folder.steps()) >= 3, patience(90))
    finally:
        process.kill()
        process.wait()
        log.close()
    step = folder.steps()[-1]
    wanted = experiment()
    with d5.launch(wanted, quiet=True, resume=tmp_path) as group:
        assert group.train(5, progress=False).step == step + 5
        networks = [group.network_parameters(replica) for replica in range(2)]
    expected = undisturbed(wanted, step + 5)
    for network in networks:
        assert_same(network, expected)
