"""Claims about what algorithms require of topologies, and about spectral gaps and rounds to consensus."""

import math
from typing import Any

import networkx
import numpy as np
import pytest

from d5ray.distributed.topologies.requirements import check_topology
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError
from d5ray.topologies import (
    Bipartite,
    ColumnStochastic,
    ColumnStochasticWeights,
    Complete,
    Connected,
    Custom,
    DirectedRing,
    DoublyStochastic,
    Exponential,
    Hypercube,
    OnePeerExponential,
    PositiveSpectralGap,
    RandomRegular,
    Requirement,
    Ring,
    Star,
    Static,
    Symmetric,
    TimeVarying,
    Torus,
    Tree,
    TwoSided,
    Undirected,
    Uniform,
)

REQUIREMENTS: dict[str, tuple[Requirement, str]] = {  # and a word of what people are told
    "connected": (Connected(), "lets nothing get from agent .* needs every agent to reach every other"),
    "undirected": (Undirected(), "and get nothing back, .* needs neighbours that exchange both ways"),
    "doubly": (
        DoublyStochastic(),
        "weights whose (rows|columns) sum to .* needs doubly stochastic ones",
    ),
    "columns": (
        ColumnStochasticWeights(),
        r"needs columns that sum to one: take mixing=",
    ),
    "symmetric": (Symmetric(), r"has the weights W\[.*needs a symmetric W"),
    "static": (Static(), "changes from round to round .* needs one that stays"),
    "gap": (PositiveSpectralGap(), "has the spectral gap 0, .*repetition ends in agreement"),
    "sides": (TwoSided(), "has a cycle of odd length, .* needs two sides"),
}


def shift(agents: int) -> Custom:
    """Everyone takes what the one before has, and keeps nothing."""
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from((rank, (rank + 1) % agents, 1.0) for rank in range(agents))
    return Custom(graph)


# 0 → 1 in one round, 1 → 0 in the next: connected over both, undirected in neither
TURNS = TimeVarying((Custom(networkx.DiGraph([(0, 1)])), Custom(networkx.DiGraph([(1, 0)]))))
LACKING: list[tuple[Topology, set[str]]] = [
    *((each, set()) for each in (Ring(4), Tree(9), Bipartite(2, 3), Complete(1), Exponential(2))),
    *((each, {"sides"}) for each in (Ring(5), Complete(3))),
    (Star(4, mixing=Uniform()), {"doubly", "columns", "symmetric"}),
    (Star(4, mixing=ColumnStochastic()), {"doubly", "symmetric"}),
    (Ring(4, mixing=ColumnStochastic()), set()),
    (DirectedRing(4), {"undirected", "symmetric"}),
    (Exponential(8), {"undirected", "symmetric", "sides"}),
    (OnePeerExponential(8), {"undirected", "symmetric", "static", "sides"}),
    (TimeVarying((Ring(4), Tree(4, branching=1))), {"static"}),
    (Custom(networkx.empty_graph(2)), {"connected", "gap"}),
    (Custom(networkx.DiGraph([(0, 1)])), {"connected", "undirected", "doubly", "symmetric"}),
    (TURNS, {"undirected", "doubly", "symmetric", "static"}),
    (shift(4), {"undirected", "symmetric", "gap"}),
]


@pytest.mark.parametrize(("topology", "lacking"), LACKING, ids=[repr(topology) for topology, _ in LACKING])
def test_which_topology_meets_what(topology: Topology, lacking: set[str]) -> None:
    """`check_topology` raises exactly for those that do not hold, first in the order given."""
    for name, (requirement, words) in REQUIREMENTS.items():
        assert (requirement.check(topology) is not None) == (name in lacking), name
        if name in lacking:
            others = [each for other, (each, _) in REQUIREMENTS.items() if other != name]
            with pytest.raises(ConfigurationError, match=words):
                check_topology(topology, [requirement, *others], "DPSGD")
    check_topology(topology, [each for name, (each, _) in REQUIREMENTS.items() if name not in lacking], "Any")


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


APART = Custom(networkx.disjoint_union(networkx.path_graph(2), networkx.path_graph(3)))
GAPS: list[tuple[Topology, float]] = [
    *((Exponential(n), 2 / (1 + math.ceil(math.log2(n)))) for n in range(2, 34, 2)),  # arXiv:2110.13363
    # W = ½ (I + shift) has the eigenvalues ½ (1 + e^(2πik/n)), of modulus |cos πk/n|
    *((DirectedRing(n), 1 - abs(math.cos(math.pi / n))) for n in range(2, 12)),
    (OnePeerExponential(8), 1.0), (OnePeerExponential(32), 1.0),
    # k = 1, 3, 5 of six: |cos πk/6 · cos 2πk/6 · cos 4πk/6|; k = 3 gives zero, k = 2: |½ · ½ · ½|
    (OnePeerExponential(6), 1 - max(math.sqrt(3) / 2 / 4, 1 / 8) ** (1 / 3)),
    (TimeVarying((Ring(5), Ring(5))), Ring(5).spectral_gap()), (TimeVarying((Ring(6), Complete(6))), 1.0),
    (Custom(networkx.empty_graph(3)), 0.0), (APART, 0.0), (shift(5), 0.0),
    (Star(6, mixing=Uniform()), 0.5), (Star(6, mixing=ColumnStochastic()), 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("topology", "expected"), GAPS, ids=[repr(topology) for topology, _ in GAPS])
def test_gaps_by_hand(topology: Topology, expected: float) -> None:
    """Time-varying: the geometric mean per round of a period; none where the graph falls apart."""
    assert topology.spectral_gap() == pytest.approx(expected, abs=1e-12)


def iterated(topology: Topology, tolerance: float, doubly: bool, most: int = 3000) -> int | None:
    """The definition, round by round; the error of push-sum never grows, so that a search may halve."""
    mean = np.full((topology.agents, topology.agents), 1 / topology.agents)
    mixed: Any = np.eye(topology.agents)
    before = math.inf
    for rounds in range(most):
        if doubly:
            distance = np.linalg.svd(mixed - mean, compute_uv=False).max()
        else:
            distance = np.abs(mixed / mixed.sum(axis=1)[:, None] - mean).sum(axis=1).max()
        assert distance <= before + 1e-12
        if distance <= tolerance:
            return rounds
        mixed, before = topology.weights(rounds) @ mixed, distance
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
@pytest.mark.parametrize("topology", [*DOUBLY, *PUSH_SUM], ids=repr)
def test_rounds_to_consensus_are_those_of_the_definition(topology: Topology, tolerance: float) -> None:
    """Doubly stochastic: the first k with ‖W_{k−1} ⋯ W_0 − 11ᵀ/n‖₂ ≤ tolerance, found by iteration."""
    expected = iterated(topology, tolerance, doubly=topology in DOUBLY)
    assert expected is not None
    assert topology.rounds_to_consensus(tolerance) == expected


@pytest.mark.parametrize(
    "topology",
    [Star(6, mixing=Uniform()), Custom(networkx.empty_graph(3)), APART, shift(5),
     Custom(networkx.DiGraph([(0, 1), (1, 2), (0, 2)]))],
    ids=repr,
)  # fmt: skip
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
    with pytest.raises(ConfigurationError, match=f"tolerance is {tolerance!r}"):
        Ring(4).rounds_to_consensus(tolerance)
