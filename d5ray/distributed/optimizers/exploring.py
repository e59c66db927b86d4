"""Agents with models of their own beside the servers', which is the one that is evaluated"""

from typing import final

from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.training.arrays import copy_of


class Exploring(DistributedOptimizer):
    """self.x is the agent's own between evaluations, and the servers' parameters in them."""

    exchange = ExchangeVia.SERVERS
    invariant = "ledger"

    def start(self) -> None:
        self.explored = copy_of(self.x)

    @final
    def finish(self) -> None:
        self.explored[...] = self.x
        self.server.pull(into=self.x)

    @final
    def resume(self) -> None:
        self.x = self.explored
