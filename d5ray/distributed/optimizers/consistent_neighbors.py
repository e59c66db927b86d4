"""Deep500's ConsistentNeighbors: it mixes gradients, never parameters, and so the agents drift apart"""

from typing import final

from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.requirements import Connected, Undirected
from d5ray.training.batches.batch import Batch


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
