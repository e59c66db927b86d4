"""Exact diffusion: adapt, correct, then combine, without the bias of plain diffusion"""

from typing import final

from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.requirements import Connected, DoublyStochastic, Static, Symmetric
from d5ray.training.arrays import copy_of
from d5ray.training.batches.batch import Batch


@final
class ExactDiffusion(DistributedOptimizer):
    """ψ⁺ = x − η g;  φ = ψ⁺ + x − ψ;  x ← ½ (I + W) φ;  ψ ← ψ⁺;  ψ₀ = x₀   (rows are agents).

    W are the topology's mixing weights, symmetric, doubly stochastic and always the same, g the gradients at
    x; φ takes back the error that combining made in the step before (Yuan, Ying, Zhao and Sayed,
    arXiv:1702.05122). With full gradients and a constant η it reaches the exact minimum, for the bytes of
    `DPSGD`. Decentralized, inconsistent: the agents' models differ until they have converged. The step by
    −η g is the base optimizer's own update, with local state. Every agent evaluates its own x_i, so
    buffers, which belong to that model, are local.

    The mean of x is that of ψ, else φ would move it. After a death the others begin again with ψ₀ = x₀ at
    their own x, since without the dead one's the two means differ.
    """

    needs = (Connected(), Symmetric(), DoublyStochastic(), Static())
    invariant = "mean"

    def start(self) -> None:
        self.psi = copy_of(self.x)

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        correction = self.x - self.psi
        self.apply(gradient)
        self.psi[...] = self.x
        self.x += correction
        phi = copy_of(self.x)
        self.communication.neighbor_average(self.x)
        self.x += phi
        self.x *= 0.5
