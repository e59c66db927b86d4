"""Claims about meshes on Ray whose agents and servers die: a death is its replica's affair"""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.actors.group.group import TrainingGroup
from d5ray.errors import AgentError
from tests.actors.group.test_replacing import SAMPLES, Pace, samples_by_epoch, train_until
from tests.actors.looks import noted
from tests.agents import agents_in_threads, shares_of
from tests.checked import assert_agreed
from tests.conftest import wait_until
from tests.distributed.regrouped import Regrouped
from tests.together import together

DIGITS = d5.datasets.load_dataset("digits")
STEPS = 14


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
    return d5.Experiment.from_values(**(given | values))


def undisturbed(wanted: d5.Experiment, steps: int = STEPS) -> dict[str, Any]:
    """The network that agents in threads of this process train, of which none dies."""
    calm = wanted.with_values(events=(), on_failure="stop")
    with agents_in_threads(calm, DIGITS) as (agents, _):
        outcomes = together(lambda rank: agents[rank].train(steps), len(agents))
        assert all(outcome.completed for outcome in outcomes), outcomes
        return shares_of(calm, DIGITS).whole([agent.parameters() for agent in agents])


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
        events = [(row["name"], row) for row in noted(group)]
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
    assert_agreed(d5.Run(group.folder))
    assert any(not np.array_equal(network[name], value) for name, value in undisturbed(wanted).items())


@pytest.mark.full
def test_a_replica_that_is_started_again_takes_the_others_state(tmp_path: Path) -> None:
    """The step that the death interrupted is done again by all: the end is that of an undisturbed run."""
    wanted = experiment(on_failure="restart", events=(DieOnce(tmp_path, 6, 2),))
    with d5.launch(wanted, quiet=True) as group:
        outcome = group.train(STEPS, progress=False)
        assert outcome.completed and outcome.step == STEPS
        events = [(row["name"], row) for row in noted(group)]
        assert [name for name, _ in events] == [
            "agent_died", "replica_restarted", "agent_restarted", "agreed", "agreed", "agents_changed",
        ]  # fmt: skip
        assert [detail["new"] for name, detail in events if name == "agreed"] == [[2], [3]]
        networks = [group.network_parameters(replica) for replica in range(2)]
    assert_agreed(d5.Run(group.folder))
    expected = undisturbed(wanted)
    for network in networks:
        assert_same(network, expected)


@pytest.mark.full
def test_where_no_replica_is_whole_all_go_back(tmp_path: Path) -> None:
    """To the run's last checkpoint, by itself; under "continue" the run ends with an error that says so."""
    event = d5.events.Checkpoint(tmp_path / "saved", every_steps=4)
    deaths = DieOnce(tmp_path, 6, 1, 2)
    wanted = experiment(on_failure="restart", events=(event, deaths))
    with d5.launch(wanted, quiet=True) as group:
        outcome = group.train(STEPS, progress=False)
        assert outcome.completed and outcome.step == STEPS
        assert {row["step"] for row in noted(group, "replica_restarted")} == {4}
        networks = [group.network_parameters(replica) for replica in range(2)]
    assert_agreed(d5.Run(group.folder))
    expected = undisturbed(wanted)
    for network in networks:
        assert_same(network, expected)
    for file in tmp_path.glob("died-*"):
        file.unlink()
    with (
        pytest.raises(AgentError, match=r"died, of the last replica that was whole"),
        d5.launch(wanted.with_values(on_failure="continue", events=(deaths,)), quiet=True) as group,
    ):
        group.train(STEPS, progress=False)


def as_in_threads(group: TrainingGroup, steps: int) -> None:
    """All replicas have the bits of agents in threads that were as many, at the same steps."""
    wanted = group.experiment.with_values(events=(), on_failure="continue")
    calm = Regrouped(wanted)
    calm.join()
    done = 0
    for row in noted(group, "agents_changed"):
        calm.train(row["step"] - done)
        calm.change(row["agents"])
        done = row["step"]
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
        events = [(row["name"], row) for row in noted(group)]
        formed, together_again = [detail for name, detail in events if name == "agents_changed"]
        assert (formed["members"], formed["step"]) == ([0, 1], 6)
        assert together_again["members"] == [0, 1, 2, 3] and together_again["step"] > 16
        assert [(d["rank"], d["step"]) for name, d in events if name == "agent_joined"] == [
            (2, together_again["step"]), (3, together_again["step"]),
        ]  # fmt: skip
        assert [d["new"] for name, d in events if name == "agreed"] == [[], [], [2], [3]]
        as_in_threads(group, group.train(100, progress=False).step)
        assert set(samples_by_epoch(group)) == {SAMPLES}
    assert_agreed(d5.Run(group.folder))


@pytest.mark.slow
def test_a_mesh_is_resized_by_whole_replicas() -> None:
    """Without a policy for deaths: to one replica of two parts, and to two again, by the run's name."""
    split = d5.networks.FullyConnectedSplit()
    wanted = experiment(mesh=d5.Mesh(2, 1, parts=2, split=split), events=(Pace(),), epochs=400)
    with d5.launch(wanted, quiet=True) as group:
        threading.Timer(0.3, d5.resize, (group,), {"agents": 2}).start()
        train_until(group, "agents_changed", 1)
        assert [row["rank"] for row in noted(group, "agent_left")] == [3, 2]
        d5.resize(group.run_id, agents=4)
        train_until(group, "agent_joined", 2)
        as_in_threads(group, group.train(100, progress=False).step)
        assert set(samples_by_epoch(group)) == {SAMPLES}
    assert_agreed(d5.Run(group.folder))
