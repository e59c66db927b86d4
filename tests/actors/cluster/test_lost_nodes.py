"""Claims about runs that lose a node for good: who is left goes on, and says that others wait for room"""

import re
import time
from collections.abc import Iterator

import pytest

import d5ray as d5
from d5ray.recipes.engine.checking.agreements import agreements
from d5ray.recipes.engine.checking.folder import Folder
from tests.actors.cluster.test_partitions import driven
from tests.clusters import Cluster, cluster
from tests.conftest import wait_until

SETUP_SECONDS = 25  # in which a node may come


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
    driver = driven(three, "allreduce", "", steps=100, on_failure="replace", until="agent_joined")
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
    assert not list(agreements(Folder(run, run.row, run.tables())))


@pytest.mark.slow
def test_an_agent_that_nobody_has_room_for_ends_a_run_that_waits_for_it(three: Cluster) -> None:
    """Under "restart" all wait for it, but not for ever; the error says that a node is lost, what to do."""
    driver = driven(three, "allreduce", "", steps=1000, on_failure="restart", setup=SETUP_SECONDS)
    folder = driver.said()["folder"]
    time.sleep(1.0)
    three.kill(2)
    said = driver.finished()["error"]
    begin = r"TrainingAgent\(rank=[01]\) could not be started again within 25 s: its node is lost"
    assert re.match(begin, said)
    assert "add a node to the cluster, or take on_failure='replace'" in said
    assert "agent_waits" in happened(folder)
