"""Allreduce SGD, the consistent decentralized method and the default: at once, overlapped, sharded"""

from typing import Any, final

from d5ray.checks import check_count
from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.communicators.background import Handle
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

    buffer_policy = SynchronizedBuffers()
    invariant = "one model"

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.allreduce(gradient, "mean")
        self.apply(gradient)


@final
class OverlappedAllreduceSGD(DistributedOptimizer):
    """x ← U( (1/P) Σ_j g_j(x), x ), the same on all P agents, bucket by bucket beside the backward pass.

    The rule is `AllreduceSGD`'s, with the same result: consistent, decentralized. The flat gradient is cut
    into buckets of at least `bucket_bytes`, in whole layers; each is exchanged as soon as it is complete (Li
    et al., arXiv:2006.15704, section 3.2.3). U is the base optimizer's update, applied once all buckets have
    arrived; its state is equal on all agents. Buffers are averaged: there is one model.
    """

    buffer_policy = SynchronizedBuffers()
    invariant = "one model"

    def __init__(self, bucket_bytes: int = 2**20) -> None:
        check_count("bucket_bytes", bucket_bytes, of="bytes")
        self.bucket_bytes = bucket_bytes

    def start(self) -> None:
        self.buckets(self.bucket_bytes)
        self.background = self.communication.start

    def step(self, batch: Batch) -> None:
        handles: list[Handle] = []

        def exchange(bucket: Any) -> None:
            handles.append(self.background.allreduce(bucket, "mean"))

        gradient = self.gradient(batch, on_ready=exchange)
        for handle in handles:
            handle.wait()
        self.apply(gradient)


@final
class ShardedAllreduceSGD(DistributedOptimizer):
    """x_[p] ← U( (1/P) Σ_j g_j(x)_[p], x_[p] ) on agent p for its own slice [p], then everyone gathers x.

    An allreduce is a reduce-scatter and an all-gather; the update stands between the two, so an agent keeps
    a P-th of the base optimizer's state and does a P-th of its work, with as many bytes exchanged
    (Rajbhandari et al., arXiv:1910.02054, stage 1 of ZeRO). The result is that of `AllreduceSGD` for every
    element-wise U: consistent, decentralized. Buffers are averaged: there is one model.
    """

    buffer_policy = SynchronizedBuffers()
    invariant = "one model"

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        part = self.communication.reduce_scatter(gradient, "mean")
        self.apply(gradient, part)
        self.communication.all_gather(self.x)
