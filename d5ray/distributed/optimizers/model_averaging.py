"""Model averaging: everyone updates, then takes the mean of all, in every step"""

from typing import final

from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.training.batches.batch import Batch


@final
class ModelAveraging(DistributedOptimizer):
    """x ← (1/P) Σ_j U(g_j(x), x).

    The mean over all P agents of what each one's base optimizer U made of its own gradient g_j (McDonald,
    Hall and Mann, NAACL 2010, with a mean after every step; model consolidation in the survey's terms:
    Ben-Nun and Hoefler, arXiv:1802.09941; consistent, decentralized). For a U that is linear in gradient
    and state (SGD, momentum) it equals `AllreduceSGD`; for others, such as Adam, it does not. The base
    optimizer's state is each agent's own, and is never averaged. Buffers are averaged: after every
    step there is one model.
    """

    untrained = SynchronizedBuffers()
    invariant = "one model"
    own_base_state = True

    def step(self, batch: Batch) -> None:
        self.apply(self.gradient(batch))
        self.communication.allreduce(self.x, "mean")
