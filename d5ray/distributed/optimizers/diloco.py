"""DiLoCo: an outer optimizer takes what a period of local steps changed for its gradient"""

from typing import final

from d5ray.checks import check_count
from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import ConfigurationError
from d5ray.training.arrays import copy_of
from d5ray.training.batches.batch import Batch
from d5ray.training.optimizers.gradient_descent import Nesterov
from d5ray.training.optimizers.optimizer import Optimizer

OUTER = Nesterov(0.7, 0.9)  # as in the paper


@final
class DiLoCo(DistributedOptimizer):
    """H local steps x_i ← U(g_i(x_i), x_i);  then Δ = x − (1/P) Σ_i x_i;  x ← outer(x, Δ);  x_i ← x.

    x is the common model of the last period, H is `period`, `outer` an optimizer whose gradient is Δ
    (Douillard et al., arXiv:2311.08105; there U is AdamW). Decentralized; inconsistent within a period, when
    every agent evaluates its own x_i. The base optimizer's state is each agent's own, goes over from period
    to period and is never averaged; the outer state is equal on all agents. All agents start from equal x_i.
    Buffers are averaged, like the models. outer=SGD(1) is local SGD.
    """

    untrained = SynchronizedBuffers()
    invariant = "one model"
    own_base_state = True
    shared_state = ("common", "outer_state")

    def __init__(self, period: int, outer: Optimizer = OUTER) -> None:
        check_count("period", period, low=1)
        if not isinstance(outer, Optimizer):
            raise ConfigurationError(f"outer is {outer!r}: it must be an Optimizer such as {OUTER!r}")
        self.period = period
        self.outer = outer

    def start(self) -> None:
        self.common = copy_of(self.x)
        self.outer_state = self.outer.state_for(self.common, self.slots)

    def equal_after(self, steps: int) -> bool:
        return steps % self.period == 0

    def step(self, batch: Batch) -> None:
        self.apply(self.gradient(batch))
        if (batch.step + 1) % self.period == 0:
            self.communication.allreduce(self.x, "mean")
            self.outer.step(self.common, self.common - self.x, self.outer_state)
            self.x = self.common
