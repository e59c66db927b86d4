"""The study of scale: simulated times to an accuracy, and exchanges of real agents beside them"""

import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.checks import check_choice, check_count, check_kind, check_number
from d5ray.distributed import network_cost
from d5ray.distributed.network_cost import LinkCost
from d5ray.distributed.simulation.compute import ConstantTime
from d5ray.distributed.simulation.links import UniformLinks
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.comparisons.contenders import AnyContender, Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import Comparison, SideBySide
from d5ray.kits.laboratory.jobs.agent_rates import whole_batches
from d5ray.kits.laboratory.jobs.scaled import (
    ALGORITHMS,
    PredictedExchange,
    allreduce_exchange,
    server_exchange,
)
from d5ray.kits.laboratory.metrics.simulations import ELAPSED_TIME, TIME_TO_ACCURACY
from d5ray.metrics.definitions.catalogue import BytesSent, ExchangeTime, PredictedExchangeTime, TestAccuracy
from d5ray.metrics.statistics.sequential_stopping import SequentialStopping
from d5ray.simulator import simulate
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.stragglers import Slowdown

Columns = dict[str, np.ndarray[Any, Any]]
BACKENDS = {"allreduce": ("shared_memory", "socket"), "parameter server": ("shared_memory",)}
REAL: dict[str, PredictedExchange] = {"allreduce": allreduce_exchange, "parameter server": server_exchange}


@final
@dataclass(frozen=True)
class Scaled(Contender["ScaleStudy"]):
    """The agents under one algorithm, on one network; straggler: the last of them is slow."""

    algorithm: str
    network: str
    straggler: bool
    processes: int

    @property
    def name(self) -> str:
        slow = ", straggler" if self.straggler else ""
        return f"{self.algorithm}, {self.network}{slow}[{self.processes}]"

    def measure(self, job: "ScaleStudy", folder: Path) -> list[RankSeries]:
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
            predicted = formula(agents, payload, links.latency_seconds, 1 / links.bytes_per_second)
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
class RealExchange(Contender["ScaleStudy"]):
    """Agents on Ray that exchange the same gradient: what that takes, and what the closed form says.

    The time of a step's exchange is that of the agent that waits least for the others.
    """

    algorithm: str
    backend: str
    processes: int

    @property
    def name(self) -> str:
        return f"real {self.algorithm}, {self.backend}[{self.processes}]"

    def measure(self, job: "ScaleStudy", folder: Path) -> list[RankSeries]:
        from d5ray.actors.launch import launch  # noqa: PLC0415 - imports Ray

        agents, network = self.processes, job.measured_networks[self.backend]
        experiment = job.experiment(
            self.algorithm, agents, job.data, communicator=self.backend, evaluate=False
        )
        with launch(experiment, quiet=True, root=folder) as group:
            group.train(experiment.recording.warmup_steps + job.real_steps, progress=False)
            samples, payload = group.metrics(), group.built.parameter_bytes
        rows = of(samples.filter(pc.equal(samples["phase"], "train")), ExchangeTime.name)
        seconds = rows["value"].reshape(agents, -1).min(axis=0)  # (agents, steps)
        alpha, beta = network.latency_seconds, network.seconds_per_byte
        predicted = REAL[self.algorithm](agents, payload, alpha, beta)
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


@final
@dataclass(frozen=True, kw_only=True)
class ScaleStudy(SideBySide):
    """Every algorithm × network × number of agents, with and without a straggler, on the virtual clock.

    Wrong values raise `ConfigurationError`.

    agents, algorithms, networks: what is combined; algorithms are names in `ALGORITHMS`
    samples_per_step  of all agents together: each takes its part of them
    sample_seconds    in which an agent computes the gradient of one sample
    factor            how many times as long a straggler, the last agent, computes
    accuracy          on the test split, that the first agent is to reach within `epochs`
    real_agents       numbers of agents whose exchange is also measured, on Ray, in `real_steps` steps
    model, model_kwargs, dataset, optimizer, seed: as in an `Experiment`
    """

    comparisons: tuple[Comparison, ...] = ()  # follow from the others
    agents: tuple[int, ...]
    algorithms: tuple[str, ...]
    networks: Mapping[str, UniformLinks]
    model: str
    dataset: str
    optimizer: Optimizer
    model_kwargs: Mapping[str, Any] = field(default_factory=dict)
    samples_per_step: int = 448
    sample_seconds: float = 1e-3
    factor: float = 4.0
    accuracy: float = 0.9
    epochs: int = 25
    real_agents: tuple[int, ...] = (2, 4)
    real_steps: int = 100
    pairs: int | SequentialStopping = 1

    def __post_init__(self) -> None:
        if self.comparisons:
            raise ConfigurationError("comparisons follow from the agents and algorithms: leave them out")
        for name in ("agents", "real_agents"):
            check_numbers(name, getattr(self, name))
        check_kind("algorithms", self.algorithms, tuple, "names such as ('allreduce', 'ADPSGD')")
        for name in self.algorithms:
            check_choice("one of the algorithms", name, ALGORITHMS)
        if not isinstance(self.networks, Mapping) or not all(
            isinstance(links, UniformLinks) for links in self.networks.values()
        ):
            raise ConfigurationError(
                f"networks is {self.networks!r}: it must be a dictionary such as {{'fast': UniformLinks()}}"
            )
        super().__post_init__()

    def check(self) -> None:
        for name in ("samples_per_step", "epochs", "real_steps"):
            check_count(name, getattr(self, name), 1)
        for name in ("sample_seconds", "accuracy"):
            check_number(name, getattr(self, name), low=0.0, low_included=False)
        check_number("factor", self.factor, low=1.0, low_included=False)
        most = max((*self.agents, *self.real_agents))
        if self.samples_per_step < most:
            raise ConfigurationError(
                f"samples_per_step is {self.samples_per_step} for {most} agents: give each of them one"
            )
        self.experiment("allreduce", 1, self.dataset)  # checks the rest

    @property
    def cpus(self) -> int:
        return max(self.real_agents, default=0)

    def contenders(self) -> list[AnyContender]:
        combined = product(self.networks, (False, True), self.algorithms, self.agents)
        simulated = [
            Scaled(algorithm, network, straggler, agents)
            for network, straggler, algorithm, agents in combined
            if agents > 1 or not straggler
        ]
        real = [
            RealExchange(algorithm, backend, agents)
            for algorithm in self.algorithms
            for backend in BACKENDS.get(algorithm, ())
            for agents in self.real_agents
        ]
        return [*simulated, *real]

    def interleaved(self) -> Iterator[tuple[int, AnyContender]]:
        for pair in range(self.most_pairs):
            for contender in self.contenders():
                yield pair, contender

    def experiment(self, algorithm: str, agents: int, dataset: str | Dataset, **values: Any) -> Experiment:
        """The experiment of this many agents by this algorithm."""
        made = ALGORITHMS[algorithm]
        return Experiment.from_values(
            model=self.model,
            model_kwargs=self.model_kwargs,
            dataset=dataset,
            optimizer=self.optimizer,
            distributed=made.rule,
            topology=made.topology(agents),
            servers=made.servers(agents),
            batch_size=self.samples_per_step // agents,
            epochs=self.epochs,
            seed=self.seed,
            **values,
        )

    def compute(self, agents: int) -> ConstantTime:
        """The time of an agent's gradient."""
        return ConstantTime(self.sample_seconds * (self.samples_per_step // agents))

    @cached_property
    def data(self) -> Dataset:
        """The data set, cut so that all steps have as many samples."""
        return whole_batches(load_dataset(self.dataset), self.samples_per_step)

    @cached_property
    def measured_networks(self) -> dict[str, LinkCost]:
        """Latency and bandwidth between agents of this machine, by backend: as once measured, or now."""
        from d5ray.actors.cluster.network_probe import measure_network  # noqa: PLC0415 - imports Ray

        known = network_cost.known([platform.node()])
        if not {backend for backends in BACKENDS.values() for backend in backends} <= known.keys():
            known = {network.backend: network for network in measure_network(None)}
        return known


def check_numbers(name: str, numbers: object) -> None:
    """Raise `ConfigurationError` unless these are different numbers of agents."""
    if not isinstance(numbers, tuple) or len(set(numbers)) < len(numbers):
        raise ConfigurationError(
            f"{name} is {numbers!r}: it must be a tuple of different numbers such as (2, 4)"
        )
    for agents in numbers:
        check_count(name, agents, 1)
