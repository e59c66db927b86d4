"""Requirements of algorithms on a topology, checked before anything starts"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from d5ray.checks import KnownKeywords
from d5ray.distributed.topologies.graph import first_one_way, first_unreached, two_sides, union
from d5ray.distributed.topologies.mixing import sums, sums_to_one
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError


class Requirement(KnownKeywords, ABC):
    """One thing that must hold. `needs` ends the sentence "DPSGD needs …"."""

    needs: ClassVar[str]

    @abstractmethod
    def check(self, topology: Topology) -> str | None:
        """The end of a sentence that begins with the topology and says what it lacks; None if it holds."""

    @abstractmethod
    def advice(self, topology: Topology) -> str:
        """The advice for a topology that lacks it."""


def check_topology(topology: Topology, requirements: Iterable[Requirement], algorithm: str) -> None:
    """Raise `ConfigurationError` unless the topology makes sense and meets the algorithm's requirements.

    >>> from d5ray.distributed.topologies.topology import Ring
    >>> check_topology(Ring(5), [TwoSided()], "ADPSGD")
    Traceback (most recent call last):
    d5ray.errors.ConfigurationError: Ring(agents=5) has a cycle of odd length, ADPSGD needs two sides with \
neighbours across alone: take Bipartite(2, 3)
    """
    topology.check()
    for requirement in requirements:
        if found := requirement.check(topology):
            raise ConfigurationError(
                f"{topology} {found}, {algorithm} needs {requirement.needs}: {requirement.advice(topology)}"
            )


@final
@dataclass(frozen=True)
class Connected(Requirement):
    """Something gets from everyone to everyone, over the rounds of a period (strongly connected)."""

    needs = "every agent to reach every other"

    def check(self, topology: Topology) -> str | None:
        unreached = first_unreached(topology)
        return unreached and f"lets nothing get from agent {unreached[0]} to agent {unreached[1]}"

    def advice(self, topology: Topology) -> str:
        return f"take a connected topology such as Ring({topology.agents})"


@final
@dataclass(frozen=True)
class Undirected(Requirement):
    """The requirement that whoever sends to another also gets from it, in the same round."""

    needs = "neighbours that exchange both ways"

    def check(self, topology: Topology) -> str | None:
        for round in range(topology.period):
            if one_way := first_one_way(topology.adjacency(round)):
                return f"lets {one_way[0]} send to {one_way[1]} and get nothing back"
        return None

    def advice(self, topology: Topology) -> str:
        return f"take an undirected topology such as Ring({topology.agents})"


@final
@dataclass(frozen=True)
class DoublyStochastic(Requirement):
    """Rows and columns of every W sum to one: mixing keeps the mean."""

    needs = "doubly stochastic ones"

    def check(self, topology: Topology) -> str | None:
        return _wrong_sums(topology, axis=1) or _wrong_sums(topology, axis=0)

    def advice(self, topology: Topology) -> str:
        one_way = first_one_way(union(topology))
        better = "an undirected topology" if one_way else "mixing=MetropolisHastings()"
        return f"take {better} or StochasticGradientPush"


@final
@dataclass(frozen=True)
class ColumnStochasticWeights(Requirement):
    """Columns of every W sum to one: what all send adds up to what they had, as push-sum needs."""

    needs = "columns that sum to one"

    def check(self, topology: Topology) -> str | None:
        return _wrong_sums(topology, axis=0)

    def advice(self, topology: Topology) -> str:
        return "take mixing=ColumnStochastic()"


@final
@dataclass(frozen=True)
class Symmetric(Requirement):
    """W_ij = W_ji in every round."""

    needs = "a symmetric W"

    def check(self, topology: Topology) -> str | None:
        for round in range(topology.period):
            weights = topology.weights(round)
            if not np.allclose(weights, weights.T, rtol=0, atol=1e-12):
                i, j = (int(k) for k in np.unravel_index(np.abs(weights - weights.T).argmax(), weights.shape))
                return f"has the weights W[{i}, {j}] = {weights[i, j]:g} and W[{j}, {i}] = {weights[j, i]:g}"
        return None

    def advice(self, topology: Topology) -> str:
        return "take an undirected topology with mixing=MetropolisHastings()"


@final
@dataclass(frozen=True)
class Static(Requirement):
    """The requirement that neighbours and weights are the same in every round."""

    needs = "one that stays"

    def check(self, topology: Topology) -> str | None:
        return f"changes from round to round (it has {topology.period})" if topology.period > 1 else None

    def advice(self, topology: Topology) -> str:
        return f"take a static topology such as Ring({topology.agents})"


@final
@dataclass(frozen=True)
class PositiveSpectralGap(Requirement):
    """Repeated mixing ends, neither in parts of the graph nor in a circle."""

    needs = "weights whose repetition ends in agreement"

    def check(self, topology: Topology) -> str | None:
        gap = topology.spectral_gap()
        return None if gap > 0 else f"has the spectral gap {gap:.3g}"

    def advice(self, topology: Topology) -> str:
        return "connect all agents, and leave each a share of its own, as MetropolisHastings() does"


@final
@dataclass(frozen=True)
class TwoSided(Requirement):
    """The agents form two sides, with neighbours across alone: `topology.sides` has them."""

    needs = "two sides with neighbours across alone"

    def check(self, topology: Topology) -> str | None:
        try:
            two_sides(topology)
        except ConfigurationError:
            return "has a cycle of odd length"
        return None

    def advice(self, topology: Topology) -> str:
        return f"take Bipartite({topology.agents // 2}, {topology.agents - topology.agents // 2})"


def _wrong_sums(topology: Topology, axis: int) -> str | None:
    for round in range(topology.period):
        weights = topology.weights(round)
        if not sums_to_one(weights, axis):
            return f"has weights whose {'columns' if axis == 0 else 'rows'} sum to {sums(weights, axis)}"
    return None
