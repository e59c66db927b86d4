"""Who exchanges with whom, and with which weights."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError


class Topology(ABC):
    """An undirected graph over `agents` members; every member is its own neighbour too."""

    agents: int

    @abstractmethod
    def neighbors(self, rank: int) -> tuple[int, ...]:
        """The other members that `rank` exchanges with, each once, in ascending order."""

    def weights(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The mixing matrix W (agents, agents): Metropolis-Hastings weights, doubly stochastic.

        W_ij = 1 / (1 + max(degree_i, degree_j)) for neighbours, the rest of the row on the diagonal
        (Xiao, Boyd, Lall, doi 10.1109/IPSN.2005.1440896); on regular graphs uniform.

        >>> Ring(4).weights()[0].round(3).tolist()
        [0.333, 0.333, 0.0, 0.333]
        """
        matrix = np.zeros((self.agents, self.agents))
        degree = [len(self.neighbors(rank)) for rank in range(self.agents)]
        for i in range(self.agents):
            for j in self.neighbors(i):
                matrix[i, j] = 1.0 / (1 + max(degree[i], degree[j]))
            matrix[i, i] = 1.0 - matrix[i].sum()
        return matrix


@final
@dataclass(frozen=True)
class Complete(Topology):
    """Everyone with everyone."""

    agents: int

    def __post_init__(self) -> None:
        check_agents(self.agents)

    def neighbors(self, rank: int) -> tuple[int, ...]:
        return tuple(other for other in range(self.agents) if other != rank)


@final
@dataclass(frozen=True)
class Ring(Topology):
    """Everyone with the next and the one before; two agents are each other's only neighbour."""

    agents: int

    def __post_init__(self) -> None:
        check_agents(self.agents)

    def neighbors(self, rank: int) -> tuple[int, ...]:
        around = {(rank - 1) % self.agents, (rank + 1) % self.agents}
        return tuple(sorted(around - {rank}))


def check_agents(agents: object) -> None:
    """Raise `ConfigurationError` unless this is a whole number of at least one agent."""
    if not isinstance(agents, int) or isinstance(agents, bool) or agents < 1:
        raise ConfigurationError(f"agents is {agents!r}: it must be a whole number of at least 1")
