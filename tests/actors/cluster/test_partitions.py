"""Claims about real runs over hosts whose network fails: namespaces with a node of a Ray cluster in each"""

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import d5ray as d5
from d5ray.actors.group import roster
from d5ray.actors.remote import SETUP_SECONDS
from d5ray.errors import D5Error
from tests.clusters import Cluster, Driver, cluster
from tests.conftest import wait_until

SECONDS = 20.0  # the time-out
APART_SECONDS = 8.0
STEPS, STEP_SECONDS = 300, 0.02
PARTED = "partition((1,), at_seconds=1.5)"
WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin")
RULES: dict[str, dict[str, Any]] = {
    "allreduce": {"distributed": d5.optimizers.AllreduceSGD(), "communicator": "socket"},
    "gossip": {
        "distributed": d5.optimizers.DPSGD(),
        "topology": d5.topologies.Ring(2),
        "communicator": "socket",
    },
    "servers": {
        "distributed": d5.optimizers.ParameterServerSGD(),
        "servers": d5.Servers(1, consistency=d5.servers.Synchronous()),
    },
}


class Pace(d5.Event):
    """Steps that take a while."""

    def before_step(self, moment: Any) -> None:
        time.sleep(STEP_SECONDS)


def experiment(rule: str, **changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.Momentum(0.05, 0.9), "agents": 2,
        "batch_size": 16, "seed": 3, "evaluate": False, "cpus_per_agent": 1.0, "timeout_seconds": SECONDS,
        "events": (Pace(),), "epochs": 400,
    }  # fmt: skip
    return d5.Experiment(**(values | RULES[rule] | changes))


def drive(address: str, rule: str, faults: str, steps: int, changes: dict[str, Any]) -> None:
    """What runs on the first host: a training, of which it says how it ended.

    changes: of the experiment. In there `until` is the event until which so many steps are done again, and
    `setup` the seconds in which an agent must have started.
    """
    pytest.MonkeyPatch().setattr(roster, "SETUP_SECONDS", changes.pop("setup", SETUP_SECONDS))
    until, plan = changes.pop("until", None), d5.Faults.parse(faults) if faults else d5.Faults()
    try:
        wanted = experiment(rule, **changes)
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


def driven(
    on: Cluster, rule: str, faults: str, steps: int = STEPS, inside: Sequence[str] = (), **changes: Any
) -> Driver:
    """Such a training on the first host of this cluster."""
    given = on.address, rule, faults, str(steps), json.dumps(changes)
    return on.drive(__file__, *given, inside=inside)


@pytest.fixture(scope="module")
def two() -> Iterator[Cluster]:
    """Two hosts with room for one agent each."""
    with cluster(2) as made:
        yield made


@pytest.mark.parametrize(
    "rule",
    [
        pytest.param("allreduce", marks=pytest.mark.slow),
        pytest.param("gossip", marks=pytest.mark.slow),
        pytest.param("servers", marks=pytest.mark.slow),
    ],
)
def test_a_partition_shorter_than_the_time_out_changes_no_bit(two: Cluster, rule: str) -> None:
    """8 s apart, under a time-out of 20 s: all steps are done, with the parameters of an undisturbed run."""
    driver = driven(two, rule, f"partition((1,), at_seconds=1.5, seconds={APART_SECONDS})")
    said = driver.said()
    assert sorted(said["hosts"]) == [host.address for host in two.hosts]
    assert driver.finished() == {"error": ""}
    assert not two.routes(0) + two.routes(1)
    wait_until(lambda: not two.left(), 20, lambda: str(two.left()))
    run = d5.Run(said["folder"])
    names = run.tables()["events"]["name"].to_pylist()
    assert {"fault", "agent_silent", "agent_heard"} <= set(names) and "agent_died" not in names
    with d5.simulate(experiment(rule)) as group:
        group.train(STEPS, progress=False)
    assert run.row["parameters_sha256"] == d5.Run(group.folder).row["parameters_sha256"]


@pytest.mark.slow
def test_a_partition_longer_than_the_time_out_ends_with_the_run(two: Cluster) -> None:
    """For ever, under a time-out of 10 s: the run ends with an error, and the hosts are connected again."""
    driver = driven(two, "allreduce", PARTED, timeout_seconds=10.0)
    folder = driver.said()["folder"]
    said = driver.finished()["error"]
    assert re.search(r"the peer with rank [01] of this group is gone", said)
    wait_until(lambda: not two.routes(0) + two.routes(1), 20, lambda: two.routes(0) + two.routes(1))
    wait_until(lambda: not two.left(), 20, lambda: str(two.left()))
    assert d5.Run(folder).row["status"] == "failed"


@pytest.mark.slow
def test_agents_that_share_a_host_are_not_parted(two: Cluster) -> None:
    """Both on one host: it is refused as the run starts, and says who shares it."""
    driver = driven(two, "allreduce", PARTED, cpus_per_agent=0.5)
    said = driver.finished()["error"]
    assert re.search(r"agent 1 shares the host 10\.213\.77\.[12] with agent 0", said)


@pytest.mark.slow
def test_a_host_whose_routes_cannot_be_changed_is_not_cut_off(two: Cluster) -> None:
    """A driver that may not: it is refused as the run starts, and says of which host and why."""
    driver = driven(two, "allreduce", PARTED, inside=WITHOUT_RIGHTS)
    said = driver.finished()["error"]
    assert f"the host {two.hosts[0].address} cannot be cut off" in said
    assert "Operation not permitted; Ray needs the right to do so there" in said


if __name__ == "__main__":
    _, address, rule, faults, steps, changes = sys.argv
    drive(address, rule, faults, int(steps), json.loads(changes))
