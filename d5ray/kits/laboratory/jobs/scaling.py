"""The job that studies scale: simulated times to an accuracy, over agents, algorithms and networks"""

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any, final

from d5ray.checks import check_count, check_number
from d5ray.distributed import network_cost
from d5ray.distributed.simulation.compute import ConstantTime
from d5ray.distributed.simulation.links import UniformLinks
from d5ray.errors import ConfigurationError, nearest
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.comparisons.comparison_job import Comparison
from d5ray.kits.laboratory.comparisons.contenders import AnyContender
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.kits.laboratory.jobs.scaled import ALGORITHMS
from d5ray.kits.laboratory.jobs.scaled_runs import BACKENDS, RealExchange, Scaled
from d5ray.kits.laboratory.jobs.whole_batches import whole_batches
from d5ray.metrics.statistics.sequential_stopping import SequentialStopping
from d5ray.training.datasets import Dataset, load_dataset
from d5ray.training.optimizers.optimizer import Optimizer

if TYPE_CHECKING:
    from d5ray.actors.session.session import Session
    from d5ray.distributed.network_cost import LinkCost


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
        if not isinstance(self.algorithms, tuple):
            raise ConfigurationError(
                f"algorithms is {self.algorithms!r}: it must be names such as ('allreduce', 'ADPSGD')"
            )
        for name in self.algorithms:
            if name not in ALGORITHMS:
                raise ConfigurationError(
                    f"algorithms has {name!r}, which is unknown: {nearest(name, ALGORITHMS)}"
                )
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

    def connect(self, address: str | None, metadata: dict[str, str], quiet: bool) -> "Session":
        if not self.real_agents:
            from d5ray.kits.laboratory.comparisons import processes  # noqa: PLC0415

            return processes.without_ray(address)
        from d5ray.actors.session import session  # noqa: PLC0415 - imports Ray

        return session.connect(address, cpus=max(self.real_agents), metadata=metadata, quiet=True)

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

    def turns(self) -> Iterator[tuple[int, AnyContender]]:
        for pair in range(self.most_pairs):
            for contender in self.contenders():
                yield pair, contender

    def experiment(self, algorithm: str, agents: int, dataset: str | Dataset, **values: Any) -> Experiment:
        """The experiment of this many agents by this algorithm."""
        made = ALGORITHMS[algorithm]
        return Experiment(
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
    def measured_networks(self) -> "dict[str, LinkCost]":
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
