"""Agents without Ray: those of an experiment in one process, for tests that train them in threads"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from d5ray.actors.coordinator import Coordinator, Place
from d5ray.actors.training_agent import TrainingAgent
from d5ray.experiment import Experiment
from d5ray.metrics.columns import expand
from d5ray.training.datasets import Dataset
from tests.together import together

_runs = itertools.count()


class Rows:
    """A sink that keeps what agents send."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.sent_events: list[dict[str, Any]] = []
        self.drained = 0

    def samples(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)

    def frames(self, batch: pa.RecordBatch) -> None:
        self.batches.append(expand(batch))

    def events(self, batch: pa.RecordBatch) -> None:
        self.sent_events += batch.to_pylist()

    def drain(self) -> None:
        self.drained += 1

    def all(self) -> list[dict[str, Any]]:
        rows = [row for batch in self.batches for row in batch.drop_columns(["t_wall"]).to_pylist()]
        return sorted(rows, key=lambda row: int(row["seq"]))

    def of(self, metric: str) -> list[Any]:
        return [row["value"] for row in self.all() if row["metric"] == metric]


@contextmanager
def agents_in_threads(
    experiment: Experiment, data: Dataset
) -> Iterator[tuple[list[TrainingAgent], list[Rows]]]:
    """Every agent, ready to train, and its rows; build is serial since PyTorch's seed is the process's."""
    count = experiment.agents or 0
    sinks = [Rows() for _ in range(count)]
    run = f"run-{next(_runs)}"
    agents = [TrainingAgent(rank, experiment, run, "node", sink) for rank, sink in enumerate(sinks)]
    for agent in agents:
        agent.build(data)
    place = Place("node", "127.0.0.1", "host", 1)
    coordinator = Coordinator(run, experiment.timeout_seconds, place)
    try:
        groups = coordinator.issue([place] * count)
        together(lambda rank: agents[rank].join(groups[rank]), count)
        yield agents, sinks
    finally:
        for agent in agents:
            agent.leave()
        coordinator.close()
