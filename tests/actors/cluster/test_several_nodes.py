"""Claims about agents on several nodes: a real Ray cluster of three nodes on this machine"""

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from ray.cluster_utils import Cluster

import d5ray as d5
from tests.actors.test_launch import experiment, flat
from tests.conftest import free_port
from tests.patience import patience


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes of one CPU each; agents of one CPU therefore go to different nodes."""
    d5.shutdown()
    store: dict[str, Any] = {"object_store_memory": 200_000_000, "dashboard_agent_listen_port": 0}
    with (
        tempfile.TemporaryDirectory(prefix="d5t-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)  # Ray and its dashboard leave folders there
        head = {"num_cpus": 1, "gcs_server_port": free_port()}
        made = Cluster(initialize_head=True, head_node_args=head | store)
        try:
            for _ in range(2):
                made.add_node(num_cpus=1, **store)
            made.wait_for_nodes(timeout=patience(60))
            yield made
        finally:
            d5.shutdown()
            made.shutdown()


@pytest.mark.slow
def test_agents_on_three_nodes_train_as_on_one_and_each_node_has_a_monitor(cluster: Cluster) -> None:
    """One agent a node (over sockets), or six agents on three nodes (hierarchical): the same parameters on
    every agent. Each monitor has its own agent's process and none with another's."""
    three = experiment(agents=3, cpus_per_agent=1.0, monitor_seconds=0.1)
    with d5.launch(three, address=cluster.address, quiet=True) as group:
        assert len({place.node for place in group.places}) == 3
        group.train(5, progress=False)
        found = [flat(group.parameters(rank)) for rank in range(3)]
        assert all(np.array_equal(found[0], other) for other in found[1:])
        assert group.communicator == "socket"
        group.train(55, progress=False)
        places = group.places
    rows = d5.sql(
        d5.Run(group.folder),
        "select agent, list(distinct scope order by scope) scopes, "
        "sum(value) filter (metric = 'node_time') s from samples "
        "where agent like 'NodeMonitor%' group by agent order by agent",
    ).to_pylist()
    watched = {row["agent"]: [scope for scope in row["scopes"] if scope.startswith("Tr")] for row in rows}
    assert watched == {
        f"NodeMonitor({place.node[:8]})": [f"TrainingAgent(rank={rank})"] for rank, place in enumerate(places)
    }
    assert all(row["s"] > 0 for row in rows)
    six = experiment(agents=6, cpus_per_agent=0.5, batch_size=12)
    with d5.launch(six, address=cluster.address, quiet=True) as group:
        assert len({place.node for place in group.places}) == 3
        assert group.communicator == "hierarchical"
        group.train(5, progress=False)
        np.testing.assert_allclose(flat(group.parameters(5)), found[0], rtol=1e-4, atol=1e-6)
