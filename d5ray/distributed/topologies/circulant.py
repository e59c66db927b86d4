"""Directed graphs on a circle, in which everyone does the same: their weights are doubly stochastic"""

from dataclasses import dataclass
from typing import final

from d5ray.distributed.topologies.mixing import Mixing
from d5ray.distributed.topologies.topology import Topology


@final
@dataclass(frozen=True, repr=False)
class DirectedRing(Topology):
    """A ring of one direction: everyone sends to the next, and gets from the one before."""

    agents: int
    mixing: Mixing | None = None
    directed = True

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return _hop(rank, 1, self.agents)


@final
@dataclass(frozen=True, repr=False)
class Exponential(Topology):
    """i sends to i + 1, i + 2, i + 4, …, i + 2^(⌈log₂ n⌉ − 1), modulo n   (Ying et al., arXiv:2110.13363).

    W_ij = 1 / (1 + ⌈log₂ n⌉), doubly stochastic; of even n the spectral gap is 2 / (1 + ⌈log₂ n⌉).
    """

    agents: int
    mixing: Mixing | None = None
    directed = True

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        hops = range(_doublings(self.agents))
        return tuple(sorted(target for hop in hops for target in _hop(rank, 2**hop, self.agents)))


@final
@dataclass(frozen=True, repr=False)
class OnePeerExponential(Topology):
    """i sends to i + 2^(k mod ⌈log₂ n⌉) modulo n alone at round k   (Ying et al., arXiv:2110.13363).

    W_k = ½ (I + that shift), doubly stochastic. Of n = 2^p agents, any p rounds in a row average exactly.
    """

    agents: int
    mixing: Mixing | None = None
    directed = True

    @property
    def period(self) -> int:
        return max(1, _doublings(self.agents))

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return _hop(rank, 2 ** (round % self.period), self.agents)


def _doublings(agents: int) -> int:
    """⌈log₂ agents⌉"""
    return (agents - 1).bit_length()


def _hop(rank: int, distance: int, agents: int) -> tuple[int, ...]:
    target = (rank + distance) % agents
    return (target,) if target != rank else ()
