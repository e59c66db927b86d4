"""Decentralized SGD with neighbours alone: parameters are mixed, before or after the update"""

from typing import final

from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.requirements import Connected, DoublyStochastic
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
