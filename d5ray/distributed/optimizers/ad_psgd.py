"""Asynchronous decentralized SGD: pairs of neighbours average whenever one of them is ready"""

from typing import final

from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.requirements import Connected, Undirected
from d5ray.training.batches.batch import Batch


@final
class ADPSGD(DistributedOptimizer):
    """g = g_i(x̂_i);  x_i, x_j ← ½ (x_i + x_j) for a random neighbour j, at once;  x_i ← x_i − η g.

    x̂_i is x_i as it was when the agent began its step; meanwhile neighbours may have averaged with x_i, which
    lies in the agent's window (AD-PSGD: Lian et al., arXiv:1710.06952). Averaging keeps the mean of all x_i.
    Decentralized, asynchronous and inconsistent: nobody waits for another agent's step, and every agent
    evaluates its own x_i. The step by −η g is the base optimizer's own update, with local state. Two windows
    are taken in the order of their ranks, so any connected undirected graph is free of deadlock; the paper
    needs a bipartite one. After a death the mean is that of the others' x_i, whose averaging with the dead
    one took place or did not.
    """

    needs = (Connected(), Undirected())
    exchange = ExchangeVia.PEERS
    invariant = "mean"

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        if neighbors := self.peers.neighbors(batch.step):
            self.peers.average(int(self.rng.choice(neighbors)))
        with self.peers.held(self.x):
            self.apply(gradient)

    def finish(self) -> None:
        self.peers.read(into=self.x)
