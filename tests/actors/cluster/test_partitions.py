"""Claims about real runs over hosts whose network fails, or that are lost: a Ray cluster over namespaces"""

import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

import d5ray as d5
from d5ray.actors.group import roster
from d5ray.actors.remote import SETUP_SECONDS
from d5ray.errors import D5Error
from tests.checked import assert_agreed
from tests.clusters import Cluster, Driver, cluster
from tests.conftest import wait_until

SECONDS = 20.0  # the time-out
APART_SECONDS = 8.0
STEPS, STEP_SECONDS = 300, 0.02


class Pace(d5.Event):
    """Steps that take a while."""

    def before_step(self, moment: Any) -> None:
        time.sleep(STEP_SECONDS)


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.Momentum(0.05, 0.9), "agents": 2,
        "batch_size": 16, "seed": 3, "evaluate": False, "cpus_per_agent": 1.0, "timeout_seconds": SECONDS,
        "events": (Pace(),), "epochs": 400, "communicator": "socket",
    }  # fmt: skip
    return d5.Experiment.from_values(**(values | changes))


def drive(address: str, faults: str, steps: int, changes: dict[str, Any]) -> None:
    """What runs on the first host: a training, of which it says how it ended.

    changes: of the experiment. In there `until` is the event until which so many steps are done again, and
    `setup` the seconds in which an agent must have started.
    """
    pytest.MonkeyPatch().setattr(roster, "SETUP_SECONDS", changes.pop("setup", SETUP_SECONDS))
    until, plan = changes.pop("until", None), d5.Faults.parse(faults) if faults else d5.Faults()
    try:
        wanted = experiment(**changes)
        with d5.launch(wanted, address=address, quiet=True, faults=plan) as group:
            say(folder=str(group.folder), hosts=[place.address for place in group.places])
            group.train(steps, progress=False)
            while until is not None and until not in group.tables()["events"]["name"].to_pylist():
                group.train(steps, progress=False)
    except D5Error as error:
        say(error=str(error))
    else:
        say(error="")
    d5.shutdown()


def say(**facts: Any) -> None:
    """A line for the test that reads it."""
    print(json.dumps(facts), flush=True)  # noqa: T201 - a program's output


def driven(on: Cluster, faults: str, steps: int = STEPS, **changes: Any) -> Driver:
    """Such a training on the first host of this cluster."""
    return on.drive(__file__, on.address, faults, str(steps), json.dumps(changes))


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    """Two hosts with room for one agent each."""
    with cluster(2) as made:
        yield made


@pytest.mark.slow
def test_a_partition_shorter_than_the_time_out_changes_no_bit(two: Cluster) -> None:
    """8 s apart, under a time-out of 20 s: all steps are done, with the parameters of an undisturbed run."""
    driver = driven(two, f"partition((1,), at_seconds=1.5, seconds={APART_SECONDS})")
    said = driver.said()
    assert sorted(said["hosts"]) == [host.address for host in two.hosts]
    assert driver.finished() == {"error": ""}
    assert not two.routes(0) + two.routes(1)
    wait_until(lambda: not two.left(), 20, lambda: str(two.left()))
    run = d5.Run(said["folder"])
    names = run.tables()["events"]["name"].to_pylist()
    assert {"fault", "agent_silent", "agent_heard"} <= set(names) and "agent_died" not in names
    with d5.simulate(experiment()) as group:
        group.train(STEPS, progress=False)
    assert run.row["parameters_sha256"] == d5.Run(group.folder).row["parameters_sha256"]


@pytest.mark.slow
def test_a_partition_longer_than_the_time_out_ends_with_the_run(two: Cluster) -> None:
    """For ever, under a time-out of 10 s: the run ends with an error, and the hosts are connected again."""
    driver = driven(two, "partition((1,), at_seconds=1.5)", timeout_seconds=10.0)
    folder = driver.said()["folder"]
    said = driver.finished()["error"]
    assert re.search(r"the peer with rank [01] of this group is gone", said)
    wait_until(lambda: not two.routes(0) + two.routes(1), 20, lambda: two.routes(0) + two.routes(1))
    wait_until(lambda: not two.left(), 20, lambda: str(two.left()))
    assert d5.Run(folder).row["status"] == "failed"


@pytest.mark.slow
def test_agents_that_share_a_host_are_not_parted(two: Cluster) -> None:
    """Both on one host: it is refused as the run starts, and says who shares it."""
    driver = driven(two, "partition((1,), at_seconds=1.5)", cpus_per_agent=0.5)
    said = driver.finished()["error"]
    assert re.search(r"agent 1 shares the host 10\.213\.77\.[12] with agent 0", said)


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    """Three hosts, of which two are nodes, with room for one agent each."""
    with cluster(3, nodes=2) as made:
        yield made


def happened(folder: str) -> list[str]:
    """The names of a run's events so far, in their order."""
    rows = d5.Run(folder).tables()["events"].to_pylist()
    return [row["name"] for row in sorted(rows, key=lambda row: row["t_wall"])]


@pytest.mark.slow
def test_the_others_train_on_until_a_node_joins_the_cluster(three: Cluster) -> None:
    """Under "replace", and all that is on the second host is killed: the agent there waits for room, which is
    told, while the other one trains. A third host joins as a node, and it comes there; one model on both."""
    driver = driven(three, "", steps=100, on_failure="replace", until="agent_joined")
    folder = driver.said()["folder"]
    time.sleep(1.0)
    three.kill(1)
    wait_until(lambda: "agent_waits" in happened(folder), 40, lambda: str(happened(folder)))
    three.start(2)
    assert driver.finished() == {"error": ""}
    names = happened(folder)
    found = [names.index(name) for name in ("agent_died", "agents_changed", "agent_waits", "agent_joined")]
    assert found == sorted(found)
    run = d5.Run(folder)
    assert_agreed(run)


@pytest.mark.slow
def test_an_agent_that_nobody_has_room_for_ends_a_run_that_waits_for_it(three: Cluster) -> None:
    """Under "restart" all wait for it, but not for ever; the error says that a node is lost, what to do."""
    driver = driven(three, "", steps=1000, on_failure="restart", setup=25)  # s, in which a node may come
    folder = driver.said()["folder"]
    time.sleep(1.0)
    three.kill(2)
    said = driver.finished()["error"]
    assert re.match(
        r"TrainingAgent\(rank=[01]\) could not be started again within 25 s: its node is lost", said
    )
    assert "on_failure='replace'" in said and "agent_waits" in happened(folder)


if __name__ == "__main__":
    _, address, faults, steps, changes = sys.argv
    drive(address, faults, int(steps), json.loads(changes))
