"""Local SGD: a mean of all models once in a while, from the beginning or after a synchronous phase"""

from typing import final

from d5ray.checks import check_count
from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.training.batches.batch import Batch


@final
class LocalSGD(DistributedOptimizer):
    """x_i ← U(g_i(x_i), x_i);  after every H-th step  x_i ← (1/P) Σ_j x_j.

    H is `period`, U the base optimizer's update (Stich, arXiv:1805.09767). Decentralized; inconsistent
    between two means, when every agent evaluates its own x_i. The base optimizer's state is each agent's
    own, and is never averaged; with H = 1 and a linear U (SGD, momentum) this still equals `AllreduceSGD`.
    Buffers are averaged, like the models.
    """

    untrained = SynchronizedBuffers()
    invariant = "one model"
    own_base_state = True

    def __init__(self, period: int) -> None:
        check_count("period", period, low=1)
        self.period = period

    def equal_after(self, steps: int) -> bool:
        return steps % self.period == 0

    def step(self, batch: Batch) -> None:
        self.apply(self.gradient(batch))
        if (batch.step + 1) % self.period == 0:
            self.communication.allreduce(self.x, "mean")


@final
class PostLocalSGD(DistributedOptimizer):
    """The first T steps x ← U( (1/P) Σ_j g_j(x), x );  then local SGD: a mean after every H-th step.

    T is `synchronous_steps`, H is `period`, counted from step T on; U is the base optimizer's update (Lin et
    al., arXiv:1808.07217). Decentralized; consistent in the first phase, inconsistent between two means
    afterwards, when every agent evaluates its own x_i. The base optimizer's state is equal on all agents in
    the first phase, goes over into the second, and is each agent's own there. Buffers are averaged,
    like the models.
    """

    untrained = SynchronizedBuffers()
    invariant = "one model"
    own_base_state = True

    def __init__(self, synchronous_steps: int, period: int) -> None:
        check_count("synchronous_steps", synchronous_steps, low=0)
        check_count("period", period, low=1)
        self.synchronous_steps = synchronous_steps
        self.period = period

    def equal_after(self, steps: int) -> bool:
        local_steps = steps - self.synchronous_steps
        return local_steps <= 0 or local_steps % self.period == 0

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        local_steps = batch.step + 1 - self.synchronous_steps
        if local_steps <= 0:
            self.communication.allreduce(gradient, "mean")
        self.apply(gradient)
        if local_steps > 0 and local_steps % self.period == 0:
            self.communication.allreduce(self.x, "mean")
