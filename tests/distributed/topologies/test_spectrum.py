"""Claims about spectral gaps and rounds to consensus, against closed forms and plain iteration."""

import math
from typing import Any

import networkx
import numpy as np
import pytest

from d5ray.distributed.topologies.circulant import DirectedRing, Exponential, OnePeerExponential
from d5ray.distributed.topologies.custom import Custom
from d5ray.distributed.topologies.mixing import ColumnStochastic, Uniform
from d5ray.distributed.topologies.random_regular import RandomRegular
from d5ray.distributed.topologies.time_varying import TimeVarying
from d5ray.distributed.topologies.topology import Complete, Ring, Topology
from d5ray.distributed.topologies.undirected import Bipartite, Hypercube, Star, Torus, Tree
from d5ray.errors import ConfigurationError


def cosines(agents: int) -> list[float]:
    return [math.cos(2 * math.pi * k / agents) for k in range(agents)]


CLOSED_FORMS: list[tuple[Topology, list[float]]] = [
    *((Ring(n), [(1 + 2 * c) / 3 for c in cosines(n)]) for n in range(3, 20)),
    *((Complete(n), [1.0] + [0.0] * (n - 1)) for n in range(1, 9)),
    *((Torus(r, c), [(1 + 2 * a + 2 * b) / 5 for a in cosines(r) for b in cosines(c)])
      for r, c in ((3, 3), (3, 4), (5, 7))),
    *((Torus(2, c), [(1 + a + 2 * b) / 4 for a in (1, -1) for b in cosines(c)]) for c in (3, 4, 6)),
    *((Hypercube(2**d), [(1 + d - 2 * k) / (1 + d) for k in range(d + 1) for _ in range(math.comb(d, k))])
      for d in range(6)),
    *((Star(n), [1.0, 0.0] + [1 - 1 / n] * (n - 2)) for n in range(2, 9)),
    *((Tree(n, branching=1), [(1 + 2 * math.cos(math.pi * k / n)) / 3 for k in range(n)])
      for n in range(3, 9)),
    *((Bipartite(m, m), [1.0, (1 - m) / (1 + m)] + [1 / (1 + m)] * (2 * m - 2)) for m in range(1, 6)),
]  # fmt: skip


@pytest.mark.parametrize(("topology", "expected"), CLOSED_FORMS, ids=[repr(t) for t, _ in CLOSED_FORMS])
def test_eigenvalues_are_their_closed_forms(topology: Topology, expected: list[float]) -> None:
    """And the gap is one minus the second largest modulus: of a ring of four λ = −1/3 counts, too."""
    eigenvalues = np.linalg.eigvalsh(topology.weights())
    np.testing.assert_allclose(eigenvalues, sorted(expected), atol=1e-13)
    moduli = sorted((abs(value) for value in expected), reverse=True)
    assert topology.spectral_gap() == pytest.approx(1 - (moduli[1] if len(moduli) > 1 else 0), abs=1e-12)


@pytest.mark.parametrize("agents", range(2, 34))
def test_gaps_of_exponential_graphs(agents: int) -> None:
    """Ying et al., arXiv:2110.13363: 2 / (1 + ⌈log₂ n⌉) of even n, more of odd n."""
    bound = 2 / (1 + math.ceil(math.log2(agents)))
    gap = Exponential(agents).spectral_gap()
    assert gap == pytest.approx(bound, abs=1e-12) if agents % 2 == 0 else gap > bound


@pytest.mark.parametrize("agents", range(2, 12))
def test_gaps_of_directed_rings(agents: int) -> None:
    """W = ½ (I + shift) has the eigenvalues ½ (1 + e^(2πik/n)), of modulus |cos πk/n|."""
    assert DirectedRing(agents).spectral_gap() == pytest.approx(
        1 - abs(math.cos(math.pi / agents)), abs=1e-12
    )


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        (OnePeerExponential(8), 1.0),
        (OnePeerExponential(32), 1.0),
        # k = 1, 3, 5 of six: |cos πk/6 · cos 2πk/6 · cos 4πk/6|; k = 3 gives zero, k = 2: |½ · ½ · ½|
        (OnePeerExponential(6), 1 - max(math.sqrt(3) / 2 / 4, 1 / 8) ** (1 / 3)),
        (TimeVarying((Ring(5), Ring(5))), Ring(5).spectral_gap()),
        (TimeVarying((Ring(6), Complete(6))), 1.0),
        (Custom(networkx.empty_graph(3)), 0.0),
        (Custom(networkx.disjoint_union(networkx.path_graph(2), networkx.path_graph(3))), 0.0),
        (Star(6, mixing=Uniform()), 0.5),
        (Star(6, mixing=ColumnStochastic()), 0.5),
    ],
    ids=repr,
)
def test_gaps_by_hand(topology: Topology, expected: float) -> None:
    """Time-varying: the geometric mean per round of a period; none where the graph falls apart."""
    assert topology.spectral_gap() == pytest.approx(expected, abs=1e-12)


def test_a_permutation_without_own_weights_never_averages() -> None:
    """W a cyclic shift: doubly stochastic and connected, but all eigenvalues have modulus one."""
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from((i, (i + 1) % 5, 1.0) for i in range(5))
    assert Custom(graph).spectral_gap() == 0
    assert Custom(graph).rounds_to_consensus() is None


# -- rounds --------------------------------------------------------------------------------------------------


def iterated(topology: Topology, tolerance: float, doubly: bool, most: int = 3000) -> int | None:
    """The definition, round by round."""
    mean = np.full((topology.agents, topology.agents), 1 / topology.agents)
    mixed: Any = np.eye(topology.agents)
    for rounds in range(most):
        if doubly:
            distance = np.linalg.svd(mixed - mean, compute_uv=False).max()
        else:
            distance = np.abs(mixed / mixed.sum(axis=1)[:, None] - mean).sum(axis=1).max()
        if distance <= tolerance:
            return rounds
        mixed = topology.weights(rounds) @ mixed
    return None


DOUBLY: list[Topology] = [
    Complete(1), Complete(2), Complete(9), Ring(4), Ring(13), Torus(3, 4), Star(7), Tree(12), Hypercube(16),
    Bipartite(2, 5), RandomRegular(14, 3), DirectedRing(7), Exponential(11),
    *(OnePeerExponential(agents) for agents in range(1, 14)),
    TimeVarying((Ring(7), Star(7), DirectedRing(7))),
]  # fmt: skip
PUSH_SUM: list[Topology] = [
    Star(6, mixing=ColumnStochastic()),
    Tree(9, mixing=ColumnStochastic()),
    Custom(networkx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (3, 1), (0, 2)])),
    TimeVarying((Custom(networkx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)])), DirectedRing(3))),
]


@pytest.mark.parametrize("tolerance", [0.5, 0.1, 1e-3, 1e-8])
@pytest.mark.parametrize("topology", DOUBLY, ids=repr)
def test_rounds_to_consensus_are_those_of_the_definition(topology: Topology, tolerance: float) -> None:
    """Doubly stochastic: the first k with ‖W_{k−1} ⋯ W_0 − 11ᵀ/n‖₂ ≤ tolerance, found by iteration."""
    expected = iterated(topology, tolerance, doubly=True)
    assert expected is not None
    assert topology.rounds_to_consensus(tolerance) == expected


@pytest.mark.parametrize("tolerance", [0.5, 0.1, 1e-3, 1e-8])
@pytest.mark.parametrize("topology", PUSH_SUM, ids=repr)
def test_rounds_to_consensus_of_push_sum(topology: Topology, tolerance: float) -> None:
    """Column-stochastic: the first k at which every ratio x_i / w_i is within tolerance, by iteration."""
    expected = iterated(topology, tolerance, doubly=False)
    assert expected is not None
    assert topology.rounds_to_consensus(tolerance) == expected
    error = [math.inf]
    mixed: Any = np.eye(topology.agents)
    for round in range(expected + 5):
        mixed = topology.weights(round) @ mixed
        error.append(np.abs(mixed / mixed.sum(axis=1)[:, None] - 1 / topology.agents).sum(axis=1).max())
        assert error[-1] <= error[-2] + 1e-12  # it never grows, so the search may halve


@pytest.mark.parametrize("agents", [5, 33, 200])
def test_rounds_of_rings_follow_the_gap(agents: int) -> None:
    """Symmetric W: ‖W^k − 11ᵀ/n‖₂ = |λ₂|^k, so k = ⌈log tolerance / log |λ₂|⌉."""
    largest = (1 + 2 * math.cos(2 * math.pi / agents)) / 3
    assert Ring(agents).rounds_to_consensus(1e-4) == math.ceil(math.log(1e-4) / math.log(largest))


@pytest.mark.parametrize("agents", [2, 4, 8, 16, 32])
def test_one_peer_exponential_agrees_after_log_n_rounds(agents: int) -> None:
    """At any tolerance, since it is exact then; six agents need more rounds the smaller it is."""
    for tolerance in (0.1, 1e-12):
        assert OnePeerExponential(agents).rounds_to_consensus(tolerance) == math.log2(agents)
    assert OnePeerExponential(6).rounds_to_consensus(1e-3) == 14
    assert OnePeerExponential(6).rounds_to_consensus(1e-6) == 28


@pytest.mark.parametrize(
    "topology",
    [
        Star(6, mixing=Uniform()),
        Custom(networkx.empty_graph(3)),
        Custom(networkx.DiGraph([(0, 1), (1, 2), (0, 2)])),
        Custom(networkx.disjoint_union(networkx.path_graph(2), networkx.path_graph(3))),
    ],
    ids=repr,
)
def test_some_never_agree_on_the_mean(topology: Topology) -> None:
    """Row-stochastic weights agree on another value, graphs in parts on several: None."""
    assert topology.rounds_to_consensus() is None


def test_row_stochastic_weights_come_as_near_as_their_limit() -> None:
    """Uniform weights of a star of 6 have the limit 1vᵀ, v = (6, 2, 2, 2, 2, 2) / 16: ‖1vᵀ − J‖_∞ = 5/12."""
    star = Star(6, mixing=Uniform())
    assert star.rounds_to_consensus(0.45) == iterated(star, 0.45, doubly=False) == 4
    assert star.rounds_to_consensus(5 / 12 - 1e-6) is None


@pytest.mark.parametrize("tolerance", [0, 1, -0.1, 1e-13, math.nan, "0.1", None], ids=repr)
def test_a_wrong_tolerance_is_refused(tolerance: Any) -> None:
    """The error names it and its bounds."""
    with pytest.raises(ConfigurationError) as caught:
        Ring(4).rounds_to_consensus(tolerance)
    expected = f"tolerance is {tolerance!r}: it must be a number from 1e-12 up to, but not, 1"
    assert str(caught.value) == expected
