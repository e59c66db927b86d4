"""Claims about what algorithms require of topologies: which meets what, and what people are told."""

import networkx
import pytest

from d5ray.distributed.topologies.circulant import DirectedRing, Exponential, OnePeerExponential
from d5ray.distributed.topologies.custom import Custom
from d5ray.distributed.topologies.mixing import ColumnStochastic, MetropolisHastings, Uniform
from d5ray.distributed.topologies.requirements import (
    ColumnStochasticWeights,
    Connected,
    DoublyStochastic,
    PositiveSpectralGap,
    Requirement,
    Static,
    Symmetric,
    TwoSided,
    Undirected,
    check_topology,
)
from d5ray.distributed.topologies.time_varying import TimeVarying
from d5ray.distributed.topologies.topology import Complete, Ring, Topology
from d5ray.distributed.topologies.undirected import Bipartite, Star, Tree
from d5ray.errors import ConfigurationError

REQUIREMENTS: dict[str, Requirement] = {
    "connected": Connected(),
    "undirected": Undirected(),
    "doubly": DoublyStochastic(),
    "columns": ColumnStochasticWeights(),
    "symmetric": Symmetric(),
    "static": Static(),
    "gap": PositiveSpectralGap(),
    "sides": TwoSided(),
}
EVERYTHING = set(REQUIREMENTS)


def shift(agents: int) -> Custom:
    """Everyone takes what the one before has, and keeps nothing."""
    graph = networkx.DiGraph()
    graph.add_weighted_edges_from((rank, (rank + 1) % agents, 1.0) for rank in range(agents))
    return Custom(graph)


# 0 → 1 in one round, 1 → 0 in the next: connected over both, undirected in neither
TURNS = TimeVarying((Custom(networkx.DiGraph([(0, 1)])), Custom(networkx.DiGraph([(1, 0)]))))
LACKING: list[tuple[Topology, set[str]]] = [
    (Ring(4), set()),
    (Tree(9), set()),
    (Bipartite(2, 3), set()),
    (Complete(1), set()),
    (Exponential(2), set()),
    (Ring(5), {"sides"}),
    (Complete(3), {"sides"}),
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
    """Each requirement says so by itself, and `check_topology` raises exactly for those that do not hold."""
    unmet = set()
    for name, requirement in REQUIREMENTS.items():
        if requirement.check(topology) is not None:
            unmet.add(name)
            with pytest.raises(ConfigurationError):
                check_topology(topology, [requirement], "Any")
    assert unmet == lacking
    check_topology(topology, [REQUIREMENTS[name] for name in sorted(EVERYTHING - lacking)], "Any")


@pytest.mark.parametrize(
    ("topology", "requirement", "expected"),
    [
        (Star(4, mixing=Uniform()), DoublyStochastic(),
         "Star(agents=4, center=0, mixing=Uniform()) has weights whose columns sum to 0.75..1.75, DPSGD "
         "needs doubly stochastic ones: take mixing=MetropolisHastings() or StochasticGradientPush"),
        (Star(4, mixing=ColumnStochastic()), DoublyStochastic(),
         "Star(agents=4, center=0, mixing=ColumnStochastic()) has weights whose rows sum to 0.75..1.75, "
         "DPSGD needs doubly stochastic ones: take mixing=MetropolisHastings() or StochasticGradientPush"),
        (Custom(networkx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)])), DoublyStochastic(),
         "Custom(<DiGraph of 3 nodes and 4 edges>) has weights whose rows sum to 0.833333..1.33333, DPSGD "
         "needs doubly stochastic ones: take an undirected topology or StochasticGradientPush"),
        (Star(4, mixing=Uniform()), ColumnStochasticWeights(),
         "Star(agents=4, center=0, mixing=Uniform()) has weights whose columns sum to 0.75..1.75, DPSGD "
         "needs columns that sum to one: take mixing=ColumnStochastic()"),
        (DirectedRing(4), Symmetric(),
         "DirectedRing(agents=4) has the weights W[0, 1] = 0 and W[1, 0] = 0.5, DPSGD needs a symmetric W: "
         "take an undirected topology with mixing=MetropolisHastings()"),
        (DirectedRing(4), Undirected(),
         "DirectedRing(agents=4) lets 3 send to 0 and get nothing back, DPSGD needs neighbours that exchange "
         "both ways: take an undirected topology such as Ring(4)"),
        (OnePeerExponential(8), Static(),
         "OnePeerExponential(agents=8) changes from round to round (it has 3), DPSGD needs one that stays: "
         "take a static topology such as Ring(8)"),
        (Custom(networkx.DiGraph([(0, 1), (1, 2), (2, 1)])), Connected(),
         "Custom(<DiGraph of 3 nodes and 3 edges>) lets nothing get from agent 1 to agent 0, DPSGD needs "
         "every agent to reach every other: take a connected topology such as Ring(3)"),
        (shift(3), PositiveSpectralGap(),
         "Custom(<DiGraph of 3 nodes and 3 edges>) has the spectral gap 0, DPSGD needs weights whose "
         "repetition ends in agreement: connect all agents, and leave each a share of its own, as "
         "MetropolisHastings() does"),
        (Ring(5), TwoSided(),
         "Ring(agents=5) has a cycle of odd length, DPSGD needs two sides with neighbours across alone: take "
         "Bipartite(2, 3)"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_people_are_told_found_expected_and_what_to_do(
    topology: Topology, requirement: Requirement, expected: str
) -> None:
    """In these words."""
    with pytest.raises(ConfigurationError) as caught:
        check_topology(topology, [requirement], "DPSGD")
    assert str(caught.value) == expected


def test_the_topology_itself_is_checked_first() -> None:
    """Weights that cannot be are refused without any requirement."""
    with pytest.raises(ConfigurationError, match="Metropolis-Hastings weights are for undirected graphs"):
        check_topology(DirectedRing(4, mixing=MetropolisHastings()), [], "DPSGD")


def test_the_first_requirement_that_does_not_hold_is_named() -> None:
    """In the order given."""
    for requirements in ([Static(), Undirected()], [Undirected(), Static()]):
        with pytest.raises(ConfigurationError, match=f"needs {requirements[0].needs}"):
            check_topology(OnePeerExponential(8), requirements, "DPSGD")


def test_requirements_are_data() -> None:
    """Equal ones are equal, so that an algorithm's list can be compared and shown."""
    assert len({*REQUIREMENTS.values(), Connected(), Static()}) == len(REQUIREMENTS)
    assert repr([DoublyStochastic(), TwoSided()]) == "[DoublyStochastic(), TwoSided()]"
