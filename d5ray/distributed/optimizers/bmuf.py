"""BMUF: blockwise model-update filtering, a momentum on what averaging would change"""

from typing import final

from d5ray.checks import check_count, check_number
from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.training.arrays import copy_of, zeros_like
from d5ray.training.batches.batch import Batch


@final
class BMUF(DistributedOptimizer):
    """H local steps x_i ← U(g_i(x_i), x_i);  then D ← μ D + ζ (x̄ − x);  x ← x + D;  x_i ← x.

    x is the common model of the last period (a block), x̄ the mean of all x_i; H is `period`, μ is
    `block_momentum`, ζ is `block_learning_rate` (Chen and Huo, doi 10.1109/ICASSP.2016.7472805, with
    classical block momentum). Decentralized; inconsistent within a period, when every agent evaluates its
    own x_i. The base optimizer's state is each agent's own, goes over from block to block and is never
    averaged; D is equal on all agents. All agents start from equal x_i. Buffers are averaged, like
    the models. (μ, ζ) = (0, 1) is local SGD.
    """

    untrained = SynchronizedBuffers()
    invariant = "one model"
    own_base_state = True
    shared_state = ("common", "change")

    def __init__(self, period: int, block_momentum: float = 0.9, block_learning_rate: float = 1.0) -> None:
        check_count("period", period, low=1)
        check_number("block_momentum", block_momentum, low=0.0, low_included=True, high=1.0)
        check_number("block_learning_rate", block_learning_rate, low=0.0, low_included=False)
        self.period = period
        self.block_momentum = block_momentum
        self.block_learning_rate = block_learning_rate

    def start(self) -> None:
        self.common = copy_of(self.x)
        self.change = zeros_like(self.x)

    def equal_after(self, steps: int) -> bool:
        return steps % self.period == 0

    def step(self, batch: Batch) -> None:
        self.apply(self.gradient(batch))
        if (batch.step + 1) % self.period == 0:
            self.communication.allreduce(self.x, "mean")
            self.change *= self.block_momentum
            self.change += self.block_learning_rate * (self.x - self.common)
            self.common += self.change
            self.x = self.common
