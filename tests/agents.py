"""Agents without Ray: those of an experiment in one process, for tests that train them in threads"""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pyarrow as pa

from d5ray.actors.cluster.placement import Place
from d5ray.actors.group.coordinator import Coordinator
from d5ray.actors.servers.parameter_server import ParameterServer
from d5ray.agent.building import shares_of as shares_of
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.wire.secret import Secret
from d5ray.distributed.world import Directory
from d5ray.experiment import Experiment
from d5ray.metrics.record.columns import expand
from d5ray.training.datasets.dataset import Dataset
from tests.together import together

_runs = itertools.count()
PLACE = Place("node", "127.0.0.1", "host", 1)


class Rows:
    """A sink that keeps what agents send."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.sent_events: list[dict[str, Any]] = []
        self.drained = 0
        self.files: dict[str, bytes] = {}

    def samples(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def frames(self, batch: pa.RecordBatch) -> None:
        self.batches.append(expand(batch))

    def events(self, batch: pa.RecordBatch) -> None:
        self.sent_events += batch.to_pylist()

    def file(self, name: str, data: bytes) -> None:
        self.files[name] = data

    def drain(self) -> None:
        self.drained += 1

    def all(self) -> list[dict[str, Any]]:
        rows = [row for batch in self.batches for row in batch.drop_columns(["t_wall"]).to_pylist()]
        return sorted(rows, key=lambda row: int(row["seq"]))

    def of(self, metric: str) -> list[Any]:
        return [row["value"] for row in self.all() if row["metric"] == metric]


def share_of(experiment: Experiment, data: Dataset, rank: int) -> Any:
    """What an agent of a mesh gets of its network."""
    if experiment.mesh is None:
        return None
    return shares_of(experiment, data).at(rank % experiment.agents_per_replica)


@contextmanager
def agents_in_threads(
    experiment: Experiment, data: Dataset
) -> Iterator[tuple[list[TrainingAgent], list[Rows]]]:
    """Every agent, ready to train, and its rows; build is serial since PyTorch's seed is the process's.

    Parameter servers, where the experiment has some, are threads too.
    """
    count = experiment.agents or 0
    sinks = [Rows() for _ in range(count)]
    run = f"run-{next(_runs)}"
    agents = [TrainingAgent(rank, experiment, run, "node", sink) for rank, sink in enumerate(sinks)]
    for agent in agents:
        agent.build(data, share_of(experiment, data, agent.rank))
    with ExitStack() as stack:
        coordinator = Coordinator(run, experiment.timeout_seconds, PLACE)
        stack.callback(coordinator.close)
        groups = coordinator.issue([PLACE] * count)
        each = experiment.agents_per_replica  # each of a replica has servers of its own
        directories = [stack.enter_context(servers_in_threads(experiment)) for _ in range(each)]
        for agent in agents:
            stack.callback(agent.leave)
        together(lambda rank: agents[rank].join(groups[rank], directory=directories[rank % each]), count)
        yield agents, sinks


@contextmanager
def servers_in_threads(experiment: Experiment) -> Iterator[Directory | None]:
    """Where the experiment's parameter servers are, which threads of this process serve; None without any."""
    resolved = experiment.resolved_servers
    if resolved is None:
        yield None
        return
    secret, shards, groups = Secret.new(), resolved.servers.shards, resolved.servers.groups
    with ExitStack() as stack:

        def serve(group: int | None = None, above: Any = (None,) * shards) -> Any:
            servers = [
                ParameterServer(shard, resolved, experiment.replicas, group) for shard in range(shards)
            ]
            addresses = []
            for server, root in zip(servers, above, strict=True):
                addresses.append(
                    server.serve(secret, PLACE.node, PLACE.address, experiment.timeout_seconds, root)
                )
                stack.callback(server.close)
            return tuple(addresses)

        root = serve()
        yield Directory(secret, root, tuple(serve(group, root) for group in range(groups) if groups > 1))
