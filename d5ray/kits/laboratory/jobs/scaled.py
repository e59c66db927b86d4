"""Closed forms of what an exchange costs (Hockney's model), and the algorithms of a study of scale by name"""

import math
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

# T of an exchange for P agents and γm bytes, with L, `latency` (s) of a message, and G, `seconds_per_byte`:
# every agent's gradient goes in, and what all make of it comes out, on a network of equal links.
PredictedExchange = Callable[[int, float, float, float], float]


def server_exchange(
    agents: int, payload_bytes: float, latency: float, seconds_per_byte: float, shards: int = 1
) -> float:
    """T = 2 L + 2 P (γm/s) G: each of s shards takes a part of every agent's, and sends as much back."""
    return 2 * latency + 2 * agents * payload_bytes / shards * seconds_per_byte


def allreduce_exchange(agents: int, payload_bytes: float, latency: float, seconds_per_byte: float) -> float:
    """T = 2 L log₂ P + 2 γm G (P−1)/P: halving and doubling.

    (Rabenseifner, doi 10.1007/978-3-540-24685-5_1)
    """
    share = (agents - 1) / agents
    return 2 * latency * math.log2(agents) + 2 * payload_bytes * seconds_per_byte * share


AGENTS_PER_SHARD = 4


@final
@dataclass(frozen=True)
class Algorithm:
    """An algorithm that agents train by. exchange: the cost of one exchange, where a closed form has it."""

    rule: DistributedOptimizer
    topology: Callable[[int], Topology] = Complete
    exchange: PredictedExchange | None = None

    def servers(self, agents: int) -> Servers | None:
        """A shard for every four agents, where it uses parameter servers."""
        return Servers(shards=shards(agents)) if ExchangeVia.SERVERS in self.rule.exchange else None


def shards(agents: int) -> int:
    """The number of parameter servers that this many agents share."""
    return max(1, agents // AGENTS_PER_SHARD)


ALGORITHMS: dict[str, Algorithm] = {
    "allreduce": Algorithm(AllreduceSGD(), exchange=allreduce_exchange),
    "parameter server": Algorithm(
        ParameterServerSGD(),
        exchange=lambda agents, size, start, pace: server_exchange(agents, size, start, pace, shards(agents)),
    ),
    "DPSGD ring": Algorithm(DPSGD(), Ring),
    "DPSGD exponential": Algorithm(DPSGD(), Exponential),
    "ADPSGD": Algorithm(ADPSGD()),
    "LocalSGD": Algorithm(LocalSGD(period=3)),
}
