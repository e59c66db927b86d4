"""The algorithms of a study of scale by name: what each is for any number of agents"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from d5ray.distributed.optimizers.ad_psgd import ADPSGD
from d5ray.distributed.optimizers.allreduce import AllreduceSGD
from d5ray.distributed.optimizers.dpsgd import DPSGD
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.local_sgd import LocalSGD
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.optimizers.parameter_server_sgd import ParameterServerSGD
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.topologies.circulant import Exponential
from d5ray.distributed.topologies.topology import Complete, Ring, Topology
from d5ray.kits.laboratory.jobs.predictions import AllreduceExchange, PredictedExchange, ServerExchange

AGENTS_PER_SHARD = 4


@final
@dataclass(frozen=True)
class Algorithm:
    """An algorithm that agents train by. exchange: the cost of one exchange, by the number of agents."""

    rule: DistributedOptimizer
    topology: Callable[[int], Topology] = Complete
    exchange: Callable[[int], PredictedExchange] | None = None

    def servers(self, agents: int) -> Servers | None:
        """A shard for every four agents, where it uses parameter servers."""
        return Servers(shards=shards(agents)) if ExchangeVia.SERVERS in self.rule.exchange else None


def shards(agents: int) -> int:
    """The number of parameter servers that this many agents share."""
    return max(1, agents // AGENTS_PER_SHARD)


ALGORITHMS: dict[str, Algorithm] = {
    "allreduce": Algorithm(AllreduceSGD(), exchange=lambda agents: AllreduceExchange()),
    "parameter server": Algorithm(
        ParameterServerSGD(), exchange=lambda agents: ServerExchange(shards(agents))
    ),
    "DPSGD ring": Algorithm(DPSGD(), Ring),
    "DPSGD exponential": Algorithm(DPSGD(), Exponential),
    "ADPSGD": Algorithm(ADPSGD()),
    "LocalSGD": Algorithm(LocalSGD(period=3)),
}
