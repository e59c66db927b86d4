"""Allreduce SGD whose batch grows instead of its learning rate shrinking"""

from collections.abc import Iterable
from dataclasses import replace
from typing import final

from d5ray.checks import check_count, check_items
from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import ConfigurationError
from d5ray.training.arrays import NO_GRADIENT, zeros_like
from d5ray.training.batches.batch import Batch


@final
class GrowingBatch(DistributedOptimizer):
    """x ← U( (Σ_s ∇ℓ_s(x)) / S, x ) once in k steps, over the S samples s of all agents in these k steps.

    k is 1 at first, and `factor` times what it was from each of the steps in `milestones` on; a new k holds
    from the next update on. Where a schedule would divide the learning rate by a factor, multiply the batch
    by it instead: the noise of the gradient falls alike, with fewer updates and fewer exchanges (Smith et
    al., arXiv:1711.00489). What a schedule of the experiment's `batch_size` does in one step, this does in
    k steps with the memory of one: for batches that an agent cannot hold. Equal to one process on the union
    of the samples, remainders included, and of the labels where the loss counts these: consistent,
    decentralized. The base optimizer U and its state move at updates alone, and are equal on all agents.
    Steps after the last update of a run move nothing. Buffers are averaged: there is one model.
    """

    buffer_policy = SynchronizedBuffers()
    invariant = "one model"
    shared_state = ("until",)
    own_state = ("sum", "samples")

    def __init__(self, milestones: Iterable[int], factor: int = 2) -> None:
        self.milestones = check_items("milestones", milestones, "the steps, such as (100, 200)")
        self.factor = factor
        check_count("factor", factor, low=2)
        for milestone in self.milestones:
            check_count("a milestone", milestone, low=1)
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ConfigurationError(
                f"milestones are {self.milestones!r}: give the steps in ascending order, each once"
            )

    def start(self) -> None:
        self.sum = zeros_like(self.x)
        self.samples = zeros_like(self.x[:1])
        self.until = 0  # the step before which the next update comes

    def meets_after(self, steps: int) -> bool:
        begin, k = 0, 1  # updates come after begin + k, begin + 2k, …
        for milestone in self.milestones:
            update = begin + max(0, -((begin - milestone) // k)) * k  # from which on k is larger
            if steps < update:
                break
            begin, k = update, k * self.factor
        return (steps - begin) % k == 0

    def step(self, batch: Batch) -> None:
        if batch.step >= self.until:
            k = self.factor ** sum(batch.step >= milestone for milestone in self.milestones)
            self.until = batch.step + k
            self.sum[...], self.samples[...] = NO_GRADIENT, 0
        gradient = self.gradient(replace(batch, weight=1.0))
        self.sum += self.loss_weight * gradient
        self.samples += self.loss_weight
        if batch.step + 1 == self.until:
            self.communication.allreduce(self.sum)
            self.communication.allreduce(self.samples)
            if self.samples[0] > 0:  # something counts
                self.apply(self.sum / self.samples)

    def gradient_factor(self, batch: Batch, weight: float | None) -> float:
        return 0.0 if weight == 0.0 else 1.0
