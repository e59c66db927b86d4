"""Claims about what algorithms require of topologies: which meets what, and what people are told."""

import networkx
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
    MetropolisHastings,
    OnePeerExponential,
    PositiveSpectralGap,
    Requirement,
    Ring,
    Star,
    Static,
    Symmetric,
    TimeVarying,
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


def test_the_topology_itself_is_checked_first() -> None:
    """Weights that cannot be are refused without any requirement."""
    with pytest.raises(ConfigurationError, match="Metropolis-Hastings weights are for undirected graphs"):
        check_topology(DirectedRing(4, mixing=MetropolisHastings()), [], "DPSGD")
