"""Allreduce SGD: the consistent decentralized method, and the default"""

from typing import final

from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.training.batches.batch import Batch


@final
class AllreduceSGD(DistributedOptimizer):
    """x ← U( (1/P) Σ_j g_j(x), x ), the same on all P agents.

    U is the base optimizer's update, g_j agent j's gradient. Equal to one process on the union of the
    agents' samples (Ben-Nun and Hoefler, arXiv:1802.09941, section 7.2: consistent, decentralized). The base
    optimizer's state is equal on all agents. Buffers are averaged: there is one model, and every
    agent saw a part of its samples.
    """

    untrained = SynchronizedBuffers()
    invariant = "one model"

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.allreduce(gradient, "mean")
        self.apply(gradient)
