"""Contenders of a study of scale: one simulated training each, and exchanges of real agents beside them"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.distributed.network_cost import LinkCost
from d5ray.distributed.simulation.compute import ComputeTime
from d5ray.distributed.simulation.links import UniformLinks
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.jobs.predictions import AllreduceExchange, PredictedExchange, ServerExchange
from d5ray.kits.laboratory.jobs.scaled import ALGORITHMS
from d5ray.kits.laboratory.metrics.simulations import ELAPSED_TIME, TIME_TO_ACCURACY
from d5ray.metrics.definitions.catalogue import BytesSent, ExchangeTime, PredictedExchangeTime, TestAccuracy
from d5ray.simulator import simulate
from d5ray.training.datasets import Dataset
from d5ray.training.stragglers import Slowdown

Columns = dict[str, np.ndarray[Any, Any]]
BACKENDS = {"allreduce": ("shared_memory", "socket"), "parameter server": ("shared_memory",)}
REAL: dict[str, PredictedExchange] = {"allreduce": AllreduceExchange(), "parameter server": ServerExchange()}


class Study(Protocol):
    """The part of a study that a contender needs; see `ScaleStudy`."""

    @property
    def networks(self) -> Mapping[str, UniformLinks]: ...
    @property
    def measured_networks(self) -> Mapping[str, LinkCost]: ...
    @property
    def data(self) -> Dataset: ...
    @property
    def factor(self) -> float: ...
    @property
    def accuracy(self) -> float: ...
    @property
    def real_steps(self) -> int: ...
    def experiment(self, algorithm: str, agents: int, dataset: Dataset, **values: Any) -> Experiment: ...
    def compute(self, agents: int) -> ComputeTime: ...


@final
@dataclass(frozen=True)
class Scaled(Contender[Study]):
    """The agents under one algorithm, on one network; straggler: the last of them is slow."""

    algorithm: str
    network: str
    straggler: bool
    processes: int

    @property
    def name(self) -> str:
        slow = ", straggler" if self.straggler else ""
        return f"{self.algorithm}, {self.network}{slow}[{self.processes}]"

    def missing(self) -> str:
        return ""

    def measure(self, job: Study, folder: Path) -> list[RankSeries]:
        agents, links = self.processes, job.networks[self.network]
        slow = (Slowdown(agents - 1, job.factor),) if self.straggler else ()
        experiment = job.experiment(self.algorithm, agents, job.data, slow=slow, warmup_steps=0)
        with simulate(experiment, links, job.compute(agents), root=folder) as group:
            begin, payload = group.seconds, group.built.parameter_bytes
            group.train(progress=False)
            samples = group.metrics()
        found = self.evaluations(samples, begin, job.accuracy)
        found.append(RankSeries(BytesSent.name, "B", 0, [most_sent(samples)], phase="run"))
        formula = ALGORITHMS[self.algorithm].exchange
        if formula is not None and agents > 1 and not self.straggler:
            predicted = formula(agents).seconds(
                agents, payload, links.latency_seconds, 1 / links.bytes_per_second
            )
            first = float(of(samples, ExchangeTime.name, step=0)["value"].max())
            found.append(RankSeries(ExchangeTime.name, "s", 0, [first], phase="run"))
            found.append(RankSeries(PredictedExchangeTime.name, "s", 0, [predicted], phase="run"))
        return found

    def evaluations(self, samples: pa.Table, begin: float, accuracy: float) -> list[RankSeries]:
        """Every agent's accuracies with their times since the begin, and when the first agent's was enough.

        The last evaluation of an asynchronous training is left out: it waits for the slowest agent.
        """
        rows = of(samples, TestAccuracy.name)
        last = -1 if ALGORITHMS[self.algorithm].rule.asynchronous else None
        found, reached = [], math.inf
        for rank in range(self.processes):
            own = rows["rank"] == rank
            accuracies = rows["value"][own][:last]
            elapsed = rows["t_mono"][own][:last] * 1e-9 - begin
            found.append(RankSeries(TestAccuracy.name, "1", rank, accuracies.tolist(), phase="test"))
            found.append(RankSeries(ELAPSED_TIME, "s", rank, elapsed.tolist(), phase="test"))
            if rank == 0 and (accuracies >= accuracy).any():
                reached = float(elapsed[np.argmax(accuracies >= accuracy)])
        return [*found, RankSeries(TIME_TO_ACCURACY, "s", 0, [reached], phase="run")]


@final
@dataclass(frozen=True)
class RealExchange(Contender[Study]):
    """Agents on Ray that exchange the same gradient: what that takes, and what the closed form says.

    The time of a step's exchange is that of the agent that waits least for the others.
    """

    algorithm: str
    backend: str
    processes: int

    @property
    def name(self) -> str:
        return f"real {self.algorithm}, {self.backend}[{self.processes}]"

    def missing(self) -> str:
        return ""

    def measure(self, job: Study, folder: Path) -> list[RankSeries]:
        from d5ray.actors.launch import launch  # noqa: PLC0415 - imports Ray

        agents, network = self.processes, job.measured_networks[self.backend]
        experiment = job.experiment(
            self.algorithm, agents, job.data, communicator=self.backend, evaluate=False
        )
        with launch(experiment, quiet=True, root=folder) as group:
            group.train(experiment.warmup_steps + job.real_steps, progress=False)
            samples, payload = group.metrics(), group.built.parameter_bytes
        rows = of(samples.filter(pc.equal(samples["phase"], "train")), ExchangeTime.name)
        seconds = rows["value"].reshape(agents, -1).min(axis=0)  # (agents, steps)
        alpha, beta = network.latency_seconds, network.seconds_per_byte
        predicted = REAL[self.algorithm].seconds(agents, payload, alpha, beta)
        return [
            RankSeries(ExchangeTime.name, "s", 0, seconds.tolist(), phase="run"),
            RankSeries(PredictedExchangeTime.name, "s", 0, [predicted], phase="run"),
            RankSeries("network_latency", "s", 0, [alpha], phase="run"),
            RankSeries("network_seconds_per_byte", "s", 0, [beta], phase="run"),
        ]


def of(samples: pa.Table, metric: str, step: int | None = None) -> Columns:
    """The rows of one metric by rank and step, as columns."""
    rows = samples.filter(pc.equal(samples["metric"], metric))
    if step is not None:
        rows = rows.filter(pc.equal(rows["step"], step))
    rows = rows.sort_by([("rank", "ascending"), ("step", "ascending")])
    return {name: rows[name].to_numpy() for name in ("rank", "step", "value", "t_mono")}


def most_sent(samples: pa.Table) -> float:
    """The bytes of the agent that sent most."""
    rows = of(samples, BytesSent.name)
    return float(np.bincount(rows["rank"], rows["value"]).max())
