"""Gradient tracking: every agent follows the mean gradient of all, by speaking with neighbours alone"""

from typing import final

from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.requirements import Connected, DoublyStochastic
from d5ray.training.arrays import NO_GRADIENT, zeros_like
from d5ray.training.batches.batch import Batch


@final
class GradientTracking(DistributedOptimizer):
    """x ← W x − η y;  y ← W y + g⁺ − g;  y₀ = g₀   (rows are agents).

    W are the topology's mixing weights of the round, doubly stochastic, g⁺ the gradients at the new x; y_i
    is agent i's estimate of the mean gradient, and the mean of all y is that of all g in every step (DIGing:
    Nedić, Olshevsky and Shi, arXiv:1607.03218, for time-varying graphs too). With full gradients and a
    constant η it reaches the exact minimum, where `DPSGD` keeps a bias. Twice the bytes of `DPSGD`.
    Decentralized, inconsistent: the agents' models differ until they have converged. The step by −η y is
    the base optimizer's own update of x, with local state. Every agent evaluates its own x_i, so buffers,
    which belong to that model, are local.

    After a death the others begin again with y₀ = g₀ at their own x: what the dead one's y knew is gone, and
    the others' y no longer add up to their g.
    """

    needs = (Connected(), DoublyStochastic())
    invariant = "tracking"

    def start(self) -> None:
        self.y = zeros_like(self.x)  # W y from the step before
        self.y[...] = NO_GRADIENT  # as long as no agent has one
        self.before = zeros_like(self.x)  # g from the step before

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        self.y += gradient - self.before
        self.before[...] = gradient
        self.before += 0.0  # no gradient is zero here, so that -0.0 - 0.0 is none in the next step
        gradient[...] = self.y  # as it is before it is mixed
        self.communication.neighbor_average(self.x, self.y)
        self.apply(gradient)
