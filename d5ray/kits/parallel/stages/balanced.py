"""Balanced: a network divided into stages of equal duration, within a memory limit"""

from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import check_count, check_rate
from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.stages.cut import Cut, Cutting, groups
from d5ray.kits.parallel.stages.partition import Allowed, Table, least_maximum, partition
from d5ray.kits.parallel.stages.stage_tables import StageTables
from d5ray.networks.executors.costs import NetworkCosts, counted_costs
from d5ray.networks.network import Network


@final
@dataclass(frozen=True)
class Balanced(Cutting):
    """Contiguous stages in the network's order, with the slowest stage as fast as possible.

    A stage takes the seconds of its operators, plus the transfer time at `bytes_per_second` of the bytes that
    it receives and sends: activations forward, and as many bytes of gradients backward. Among equally fast
    cuts the one that moves the fewest bytes is chosen. The dynamic program is exact (that of PipeDream,
    arXiv:1806.03377, without replication).

    costs               of one micro-batch, from `operator_costs`; by default they are counted for a sample,
                        and the same on every machine
    limit_bytes         of a stage: copies × its parameters + its kept activations of micro-batches
    copies              of the parameters: with their gradients and the optimizer's state
    kept_micro_batches  the maximal number that a stage keeps; None: as with one-forward-one-backward, the
                        number of stages from this one on
    trains              whether every stage must have parameters, as those of a `Mesh` must
    """

    stages: int
    costs: NetworkCosts | None = None
    limit_bytes: int | None = None
    copies: int = 3
    kept_micro_batches: int | None = None
    bytes_per_second: float = 2e9
    trains: bool = False

    def __post_init__(self) -> None:
        check_count("stages", self.stages, 1)
        check_count("copies", self.copies, 1)
        check_rate("bytes_per_second", self.bytes_per_second)
        for name in ("limit_bytes", "kept_micro_batches"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), 1)

    def stages_of(self, network: Network) -> dict[str, int]:
        return self.cut(network).stages_of(network)

    def cut(self, network: Network) -> Cut:
        """The resulting cut, to give to all processes that must cut in the same way.

        Raises `ConfigurationError` for fewer operators than stages, for costs that are not the network's, and
        where no cut stays within the limit, with the least that there is.
        """
        own = groups(network)
        if len(own) < self.stages:
            raise ConfigurationError(
                f"the network's {len(network.nodes)} nodes cannot be cut into {self.stages} stages: some "
                f"would be without operators; take {len(own)} or fewer"
            )
        costs = counted_costs(network) if self.costs is None else self.costs
        missing = [node.name for node in network.nodes if node.name not in costs.seconds]
        if missing:
            raise ConfigurationError(
                f"the costs have no node {missing[0]!r}, and lack {len(missing)} of "
                f"{len(network.nodes)}: measure them on this network"
            )
        tables = StageTables(network, own, costs)
        allowed = [self._may_be(tables)] * self.stages
        if self.limit_bytes is not None:
            allowed = [
                allowed[stage] & (self._memory(tables, stage) <= self.limit_bytes)
                for stage in range(self.stages)
            ]
        begins = partition(tables.seconds(self.bytes_per_second), tables.received, allowed)
        if begins is None:
            raise self._none(tables)
        return Cut(tuple(own[begin][-1].name for begin in begins))

    def _may_be(self, tables: StageTables) -> Allowed:
        return tables.may_be & (tables.parameters > 0) if self.trains else tables.may_be

    def _memory(self, tables: StageTables, stage: int) -> Table:
        """The bytes of every part as this stage."""
        kept = self.stages - stage if self.kept_micro_batches is None else self.kept_micro_batches
        return np.asarray(self.copies * tables.parameters + kept * np.maximum(tables.kept, 0))

    def _none(self, tables: StageTables) -> ConfigurationError:
        memory = [self._memory(tables, stage) for stage in range(self.stages)]
        least = least_maximum(memory, [self._may_be(tables)] * self.stages)
        if self.trains and not np.isfinite(least):
            return ConfigurationError(
                f"no cut into {self.stages} stages leaves parameters to train in each: take fewer stages"
            )
        if self.limit_bytes is None or not np.isfinite(least):
            return ConfigurationError(
                f"the network cannot be cut into {self.stages} stages: between most of its nodes stands a "
                "tensor of an unknown type, or a state that both sides read"
            )
        return ConfigurationError(
            f"no cut into {self.stages} stages stays within {self.limit_bytes:,} bytes: the least for the "
            f"largest stage is {int(least):,} ({self.copies} times its parameters, and what it keeps of "
            "micro-batches); take more stages, smaller micro-batches, or a higher limit"
        )
