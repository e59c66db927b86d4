"""Decentralized SGD with neighbours alone: what is mixed, when, and what corrects the mixing"""

from typing import final

from d5ray.distributed.optimizers.gradient_push import apply_to_numerator
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.requirements import (
    ColumnStochasticWeights,
    Connected,
    DoublyStochastic,
    Static,
    Symmetric,
    Undirected,
)
from d5ray.training.arrays import NO_GRADIENT, copy_of, zeros_like
from d5ray.training.batches.batch import Batch


@final
class DPSGD(DistributedOptimizer):
    """x_i ← Σ_j W_ij x_j − η g_i(x_i).

    W are the topology's mixing weights, doubly stochastic; g_i is agent i's gradient at its own parameters
    before they are mixed, so mixing and gradient may overlap (D-PSGD: Lian et al., arXiv:1705.09056;
    "combine while adapting", the consensus strategy of the diffusion literature: Sayed, arXiv:1205.4220).
    Decentralized and inconsistent: the agents' models differ, their mean follows the mean gradient, x̄ ← x̄ −
    η ḡ. With a constant η and agents whose data differ it ends at a distance O(η) of the minimum. The step
    by −η g_i is the base optimizer's own update; its state is kept local. Every agent evaluates its own x_i,
    so buffers, which belong to that model, are local.

    After a death the mean is that of the others' x_i as they stood after their own last complete steps.
    """

    needs = (Connected(), DoublyStochastic())
    invariant = "mean"

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.neighbor_average(self.x)
        self.apply(gradient)


@final
class AdaptThenCombine(DistributedOptimizer):
    """x_i ← Σ_j W_ij (x_j − η g_j(x_j)).

    W are the topology's mixing weights, doubly stochastic; everyone updates, then what came of it is mixed
    (diffusion by "adapt then combine": Sayed, arXiv:1205.4220). With W = 11ᵀ/n and SGD it equals
    `AllreduceSGD`, which `DPSGD` does not. Decentralized and inconsistent: the agents' models differ, their
    mean follows the mean gradient. The step by −η g_j is the base optimizer's own update; its state is kept
    local. Every agent evaluates its own x_i, so buffers, which belong to that model, are local.
    """

    needs = (Connected(), DoublyStochastic())
    invariant = "mean"

    def step(self, batch: Batch) -> None:
        self.apply(self.gradient(batch))
        self.communication.neighbor_average(self.x)


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
        error = self.psi - self.x
        self.apply(gradient)
        self.psi[...] = self.x
        self.x -= error
        phi = copy_of(self.x)
        self.communication.neighbor_average(self.x)
        self.x += phi
        self.x *= 0.5


@final
class StochasticGradientPush(DistributedOptimizer):
    """u ← P (u − η g(z));  w ← P w;  z = u / w;  u₀ = x₀, w₀ = 1   (rows are agents).

    P are the topology's mixing weights of the round, column-stochastic: everyone splits what it has among
    those it sends to, who need not send back. So Σ_i u_i is conserved but for the gradients, Σ_i w_i = n, and
    z_i = u_i / w_i corrects what an unequal P does (SGP: Assran et al., arXiv:1811.10792, where u is called
    x). self.x is z: the gradient is taken there, and it is what is evaluated; u is w z, so that agents send z
    and w.
    With a doubly stochastic P, w stays 1 and this is `AdaptThenCombine`. Decentralized, inconsistent: the
    agents' z differ. The step by −η g is the base optimizer's own update of u, with local state. Every
    agent evaluates its own z_i, so buffers, which belong to that model, are local.

    After a death the others begin again with u = z and w = 1, each with its own z: then Σ w is their number.
    What the dead one held is gone, with the shares that it had been given.
    """

    needs = (Connected(), ColumnStochasticWeights())
    invariant = "mass"

    def start(self) -> None:
        self.w = zeros_like(self.x[:1]) + 1

    def step(self, batch: Batch) -> None:
        apply_to_numerator(self, self.gradient(batch), float(self.w[0]))
        self.communication.push_sum(self.x, self.w)


@final
class ConsistentNeighbors(DistributedOptimizer):
    """x_i ← U( (g_{i−1} + g_i + g_{i+1}) / 3, x_i ).

    The rule of Deep500's listing (Ben-Nun et al., arXiv:1901.10183), kept as it was; U is the base
    optimizer's update, with local state. It names D-PSGD (arXiv:1705.09056) as its source, but that mixes
    parameters: use `DPSGD`. Here nothing draws the agents together. On a ring of n ≥ 4 agents the mixing
    matrix has negative eigenvalues (−1/3 where n is even), so a difference between agents in that direction
    climbs the gradient and grows without bound, from noise alone. The 3 is that of a ring: two agents scale
    their gradients by 2/3, and a difference between them stays for ever. Decentralized and, against its
    name, inconsistent. Every agent evaluates its own x_i, so buffers are local. It conserves nothing: the
    mean follows the mean gradient only on a ring of three or more.
    """

    needs = (Connected(), Undirected())
    invariant = "none"

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.reduce_from_neighbors(gradient)
        gradient /= 3
        self.apply(gradient)
