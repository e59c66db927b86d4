"""Stochastic gradient push: decentralized SGD on directed graphs, by push-sum"""

from typing import final

from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.requirements import ColumnStochasticWeights, Connected
from d5ray.training.arrays import copy_of, zeros_like
from d5ray.training.batches.batch import Batch


@final
class StochasticGradientPush(DistributedOptimizer):
    """u ← P (u − η g(z));  w ← P w;  z = u / w;  w₀ = 1   (rows are agents).

    P are the topology's mixing weights of the round, column-stochastic: everyone splits what it has among
    those it sends to, who need not send back. So Σ_i u_i is conserved but for the gradients, Σ_i w_i = n, and
    z_i = u_i / w_i corrects what an unequal P does (SGP: Assran et al., arXiv:1811.10792, where u is called
    x). self.x is z: the gradient is taken there, and it is what is evaluated; the numerator u is a buffer.
    With a doubly stochastic P, w stays 1 and this is `AdaptThenCombine`. Decentralized, inconsistent: the
    agents' z differ. The step by −η g is the base optimizer's own update of u, with local state. Every
    agent evaluates its own z_i, so buffers, which belong to that model, are local.

    After a death the others begin again with u = z and w = 1, each with its own z: then Σ w is their number.
    What the dead one held is gone, with the shares that it had been given.
    """

    needs = (Connected(), ColumnStochasticWeights())
    invariant = "mass"

    def start(self) -> None:
        self.u = copy_of(self.x)
        self.w = zeros_like(self.x[:1]) + 1

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        self.x = self.u
        self.apply(gradient)
        self.communication.neighbor_average(self.x, self.w)
        self.u[...] = self.x
        self.x /= self.w
