"""Allreduce SGD whose base optimizer's state is sharded over the agents"""

from typing import final

from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.training.batches.batch import Batch


@final
class ShardedAllreduceSGD(DistributedOptimizer):
    """x_[p] ← U( (1/P) Σ_j g_j(x)_[p], x_[p] ) on agent p for its own slice [p], then everyone gathers x.

    An allreduce is a reduce-scatter and an all-gather; the update stands between the two, so an agent keeps
    a P-th of the base optimizer's state and does a P-th of its work, with as many bytes exchanged
    (Rajbhandari et al., arXiv:1910.02054, stage 1 of ZeRO). The result is that of `AllreduceSGD` for every
    element-wise U: consistent, decentralized. Buffers are averaged: there is one model.
    """

    untrained = SynchronizedBuffers()
    invariant = "one model"

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        part = self.communication.reduce_scatter(gradient, "mean")
        self.apply(gradient, part)
        self.communication.all_gather(self.x)
