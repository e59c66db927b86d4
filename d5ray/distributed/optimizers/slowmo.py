"""SlowMo: momentum over periods of local steps"""

from typing import final

from d5ray.checks import check_count, check_number
from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.training.arrays import copy_of, zeros_like
from d5ray.training.batches.batch import Batch


@final
class SlowMo(DistributedOptimizer):
    """H local steps x_i ← U(g_i(x_i), x_i);  then u ← β u + (x − x̄)/γ;  x ← x − α γ u;  x_i ← x.

    x is the common model of the last period, x̄ the mean of all x_i, γ the base optimizer's learning rate; H
    is `period`, β `slow_momentum`, α `slow_learning_rate` (Wang et al., arXiv:1910.00643, over local SGD).
    Decentralized; inconsistent within a period, when every agent evaluates its own x_i. The base
    optimizer's state is each agent's own and goes over from period to period (the paper's "maintain"); u is
    equal on all agents. All agents start from equal x_i. Buffers are averaged, like the models.
    (β, α) = (0, 1) is local SGD.
    """

    untrained = SynchronizedBuffers()
    invariant = "one model"
    own_base_state = True
    shared_state = ("common", "u")

    def __init__(self, period: int, slow_momentum: float = 0.7, slow_learning_rate: float = 1.0) -> None:
        check_count("period", period, low=1)
        check_number("slow_momentum", slow_momentum, low=0.0, low_included=True, high=1.0)
        check_number("slow_learning_rate", slow_learning_rate, low=0.0, low_included=False)
        self.period = period
        self.slow_momentum = slow_momentum
        self.slow_learning_rate = slow_learning_rate

    def start(self) -> None:
        self.common = copy_of(self.x)
        self.u = zeros_like(self.x)

    def equal_after(self, steps: int) -> bool:
        return steps % self.period == 0

    def step(self, batch: Batch) -> None:
        self.apply(self.gradient(batch))
        if (batch.step + 1) % self.period == 0:
            self.communication.allreduce(self.x, "mean")
            self.u *= self.slow_momentum
            self.u += (self.common - self.x) / self.learning_rate
            self.common -= self.slow_learning_rate * self.learning_rate * self.u
            self.x = self.common
