"""Asynchronous gossip: models of random neighbours are averaged, or walk over the graph and merge"""

from typing import final

import numpy as np

from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.requirements import Connected, Undirected
from d5ray.frameworks.host import host_view
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


@final
class RandomWalkGossip(DistributedOptimizer):
    """(x, a) ← merge with every (y, b) that came: x ← (a x + b y) / (a + b), a ← max(a, b);
    x ← x − η g(x), a ← a + 1;  (x, a) goes to a random neighbour.

    a is the model's age, in updates (gossip learning: Ormándi, Hegedűs, Jelasity, arXiv:1109.1396, with the
    merge by age of Hegedűs, Danner, Jelasity, doi 10.1016/j.jpdc.2020.10.006). Decentralized, asynchronous
    and inconsistent: every agent evaluates its own x. The step by −η g is the base optimizer's own update,
    with local state. Merging is convex, so no sum is kept, and none has to be: a death loses one model, and
    what it alone had learnt.
    """

    needs = (Connected(),)
    exchange = ExchangeVia.PEERS
    invariant = "ages"

    def start(self) -> None:
        self.age = np.ones(1)

    def step(self, batch: Batch) -> None:
        self.finish()
        self.apply(self.gradient(batch))
        self.age += 1
        if neighbors := self.peers.neighbors(batch.step):
            self.peers.send(int(self.rng.choice(neighbors)), self.x, self.age)

    def finish(self) -> None:
        """Merge with the models that have come."""
        x = host_view(self.x)
        for message in self.peers.receive():
            y, age = message.arrays
            if not message.returned:
                x -= (age / (self.age + age)).astype(x.dtype) * (x - y)
                self.age = np.maximum(self.age, age)
