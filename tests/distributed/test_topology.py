"""Claims about topologies and their mixing weights, against closed forms."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.topology import Complete, Ring, Topology
from d5ray.errors import ConfigurationError

SIZES = range(1, 10)


class Path(Topology):
    """0 - 1 - 2 - …: a graph whose members have different numbers of neighbours."""

    def __init__(self, agents: int) -> None:
        self.agents = agents

    def neighbors(self, rank: int) -> tuple[int, ...]:
        return tuple(other for other in (rank - 1, rank + 1) if 0 <= other < self.agents)


class Star(Path):
    """0 in the middle."""

    def neighbors(self, rank: int) -> tuple[int, ...]:
        return tuple(range(1, self.agents)) if rank == 0 else (0,)


@pytest.mark.parametrize("agents", SIZES)
@pytest.mark.parametrize("kind", [Complete, Ring, Path, Star])
def test_weights_are_symmetric_and_doubly_stochastic(kind: Callable[[int], Topology], agents: int) -> None:
    """W = Wᵀ ≥ 0, rows and columns sum to one, and W_ij > 0 exactly on the closed neighbourhood."""
    topology = kind(agents)
    weights = topology.weights()
    assert weights.shape == (agents, agents) and weights.dtype == np.float64
    np.testing.assert_array_equal(weights, weights.T)
    np.testing.assert_allclose(weights.sum(axis=0), 1, atol=1e-15)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-15)
    for rank in range(agents):
        closed = {rank, *topology.neighbors(rank)}
        assert {int(other) for other in np.flatnonzero(weights[rank] > 1e-15)} == closed
        assert weights.min() >= 0


@pytest.mark.parametrize("agents", SIZES)
@pytest.mark.parametrize("kind", [Complete, Ring])
def test_neighbours_are_mutual_ascending_and_never_oneself(
    kind: Callable[[int], Topology], agents: int
) -> None:
    """j is a neighbour of i exactly when i is one of j."""
    topology = kind(agents)
    around = {rank: topology.neighbors(rank) for rank in range(agents)}
    for rank, others in around.items():
        assert list(others) == sorted(set(others) - {rank})
        assert all(rank in around[other] for other in others)


@pytest.mark.parametrize("agents", SIZES)
def test_a_complete_graph_averages_in_one_round(agents: int) -> None:
    """W = 11ᵀ/n."""
    np.testing.assert_allclose(Complete(agents).weights(), np.full((agents, agents), 1 / agents), atol=1e-15)


@pytest.mark.parametrize("agents", range(3, 10))
def test_a_ring_has_the_eigenvalues_of_a_circulant_matrix(agents: int) -> None:
    """λ_k = (1 + 2 cos 2πk/n) / 3: the smallest of four is −1/3, which makes mixing gradients diverge."""
    expected = np.sort((1 + 2 * np.cos(2 * np.pi * np.arange(agents) / agents)) / 3)
    np.testing.assert_allclose(np.linalg.eigvalsh(Ring(agents).weights()), expected, atol=1e-14)


def test_small_rings() -> None:
    """A ring of one is alone, one of two is a pair, one of three is complete, one of four is not."""
    assert [Ring(agents).neighbors(0) for agents in (1, 2, 3, 4)] == [(), (1,), (1, 2), (1, 3)]
    assert Ring(5).neighbors(4) == (0, 3)
    np.testing.assert_allclose(Ring(2).weights(), [[0.5, 0.5], [0.5, 0.5]])


def test_metropolis_hastings_weights_of_a_path() -> None:
    """1 / (1 + max degree) on the edges: by hand for 0 - 1 - 2 - 3."""
    third = 1 / 3
    expected = [
        [2 / 3, third, 0, 0],
        [third, third, third, 0],
        [0, third, third, third],
        [0, 0, third, 2 / 3],
    ]
    np.testing.assert_allclose(Path(4).weights(), expected, atol=1e-15)


@pytest.mark.parametrize("kind", [Complete, Ring, Path, Star])
def test_repeated_averaging_reaches_the_mean(kind: Callable[[int], Topology]) -> None:
    """A connected graph: W^t x → mean of x."""
    values = np.random.default_rng(2).standard_normal(6)
    mixed = np.linalg.matrix_power(kind(6).weights(), 2000) @ values
    np.testing.assert_allclose(mixed, values.mean(), atol=1e-10)


@pytest.mark.parametrize("kind", [Complete, Ring])
@pytest.mark.parametrize("agents", [0, -1, 2.0, "4", True, None], ids=repr)
def test_a_wrong_number_of_agents_is_refused(kind: Callable[[Any], Topology], agents: Any) -> None:
    """The error names the value and what it must be."""
    with pytest.raises(ConfigurationError) as caught:
        kind(agents)
    assert str(caught.value) == f"agents is {agents!r}: it must be a whole number of at least 1"


def test_topologies_are_data() -> None:
    """Equal ones compare and hash equal, they print as they are written and cannot be changed."""
    assert Ring(4) == Ring(4) != Ring(5)
    topologies: list[Topology] = [Ring(4), Ring(4), Complete(4)]
    assert len(set(topologies)) == 2
    assert repr(Ring(4)) == "Ring(agents=4)"
    with pytest.raises(AttributeError):
        Ring(4).agents = 5  # type: ignore[misc]
