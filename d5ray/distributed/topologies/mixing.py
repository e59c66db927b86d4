"""Mixing weights: how much an agent gives to its own array and to each that it gets"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import KnownKeywords
from d5ray.distributed.topologies.graph import CommunicationGraph, Matrix, first_one_way
from d5ray.errors import ConfigurationError

TOLERANCE = 1e-9  # by which sums may differ from one


class Mixing(KnownKeywords, ABC):
    """A rule by which the weights follow from the graph."""

    @abstractmethod
    def matrix(self, topology: CommunicationGraph, round: int) -> Matrix:
        """W (agents, agents): i gives W[i, j] to what it gets from j, and W[i, i] to its own.

        W[i, j] is zero where `topology.adjacency(round)[i, j]` is False, i ≠ j; all rows or all columns sum
        to one.
        """


@final
@dataclass(frozen=True)
class MetropolisHastings(Mixing):
    """W_ij = 1 / (1 + max(degree_i, degree_j)) for neighbours, the rest of the row for its own.

    Symmetric and doubly stochastic, on every undirected graph (Xiao, Boyd, Lall,
    doi 10.1109/IPSN.2005.1440896); uniform on regular ones.
    """

    def matrix(self, topology: CommunicationGraph, round: int) -> Matrix:
        table = topology.adjacency(round)
        if one_way := first_one_way(table):
            raise ConfigurationError(
                f"{topology} is directed ({one_way[0]} sends to {one_way[1]}, which does not send back), and "
                "Metropolis-Hastings weights are for undirected graphs: take mixing=ColumnStochastic()"
            )
        degree = table.sum(axis=1)
        weights = np.where(table, 1.0 / (1 + np.maximum.outer(degree, degree)), 0.0)
        np.fill_diagonal(weights, 1.0 - weights.sum(axis=1))
        return weights


@final
@dataclass(frozen=True)
class Uniform(Mixing):
    """W_ij = 1 / (1 + in-degree of i): the plain mean of one's own array and all that arrive.

    Row-stochastic; doubly stochastic where all have the same number of in- and out-neighbours.
    """

    def matrix(self, topology: CommunicationGraph, round: int) -> Matrix:
        closed = topology.adjacency(round) | np.eye(topology.agents, dtype=np.bool_)
        return np.asarray(closed / closed.sum(axis=1, keepdims=True))


@final
@dataclass(frozen=True)
class ColumnStochastic(Mixing):
    """W_ij = 1 / (1 + out-degree of j): everyone splits its own into equal parts, and keeps one.

    Nothing gets lost on any directed graph, which is what push-sum needs (Kempe, Dobra, Gehrke,
    doi 10.1109/SFCS.2003.1238221); doubly stochastic, and equal to `Uniform`, where all have the same
    number of in- and out-neighbours.
    """

    def matrix(self, topology: CommunicationGraph, round: int) -> Matrix:
        closed = topology.adjacency(round) | np.eye(topology.agents, dtype=np.bool_)
        return np.asarray(closed / closed.sum(axis=0, keepdims=True))


def mixing_matrix(mixing: Mixing, topology: CommunicationGraph, round: int) -> Matrix:
    """The weights of a round, read-only; `ConfigurationError` where a mixing gave what cannot be."""
    agents = topology.agents
    matrix = np.array(mixing.matrix(topology, round), dtype=np.float64)
    where = f"{mixing!r} gives {topology} at round {round}"
    if matrix.shape != (agents, agents) or not np.isfinite(matrix).all():
        raise ConfigurationError(
            f"{where} weights of shape {matrix.shape}, {np.isfinite(matrix).sum()} of them finite: it must "
            f"be {(agents, agents)}, all finite"
        )
    outside = (matrix != 0) & ~topology.adjacency(round) & ~np.eye(agents, dtype=np.bool_)
    if outside.any():
        i, j = np.argwhere(outside)[0].tolist()
        raise ConfigurationError(
            f"{where} the weight W[{i}, {j}] = {matrix[i, j]:g}, but {j} does not send to {i}: it "
            "must be zero"
        )
    if not (sums_to_one(matrix, axis=1) or sums_to_one(matrix, axis=0)):
        raise ConfigurationError(
            f"{where} weights whose rows sum to {sums(matrix, axis=1)} and whose columns to "
            f"{sums(matrix, axis=0)}: all rows or all columns must sum to one"
        )
    matrix.setflags(write=False)
    return matrix


def sums_to_one(matrix: Matrix, axis: int) -> bool:
    """True if the sums over this axis are one: axis 0, of the columns; axis 1, of the rows."""
    return bool(np.abs(matrix.sum(axis=axis) - 1).max() <= TOLERANCE)


def sums(matrix: Matrix, axis: int) -> str:
    """The sums over this axis, as their range."""
    low, high = (f"{value:.6g}" for value in (matrix.sum(axis=axis).min(), matrix.sum(axis=axis).max()))
    return low if low == high else f"{low}..{high}"
