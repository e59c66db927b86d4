"""Allreduce SGD that exchanges the last layers' gradients while the first layers' are computed"""

from typing import Any, final

from d5ray.checks import check_count
from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.communicators.background import Handle
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.training.batches.batch import Batch


@final
class OverlappedAllreduceSGD(DistributedOptimizer):
    """x ← U( (1/P) Σ_j g_j(x), x ), the same on all P agents, bucket by bucket beside the backward pass.

    The rule is `AllreduceSGD`'s, with the same result: consistent, decentralized. The flat gradient is cut
    into buckets of at least `bucket_bytes`, in whole layers; each is exchanged as soon as it is complete (Li
    et al., arXiv:2006.15704, section 3.2.3). U is the base optimizer's update, applied once all buckets have
    arrived; its state is equal on all agents. Buffers are averaged: there is one model.
    """

    untrained = SynchronizedBuffers()
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
