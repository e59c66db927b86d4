"""Hogwild: all agents train one and the same array, and nobody locks it"""

from typing import final

from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.training.batches.batch import Batch


@final
class Hogwild(DistributedOptimizer):
    """x ← x − η g_i(x̂)  on one x in the memory that all agents share, without a lock.

    x̂ is whatever the agent read, coordinate by coordinate, while others wrote; an update that another one
    overtakes may be lost in single coordinates (Niu, Recht, Ré, Wright, arXiv:1106.5730). The step is the
    base optimizer's own update; its state is each agent's own. Centralized by memory, asynchronous; agents of
    one node. Its updates have no order, so a run cannot be replayed. x outlives a death: of the dead agent's
    last update some coordinates may be there.
    """

    exchange = ExchangeVia.SHARED_MEMORY
    invariant = "one array"

    def step(self, batch: Batch) -> None:
        self.apply(self.gradient(batch))
