"""Claims about topologies from graphs of networkx."""

from dataclasses import replace
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.distributed.topologies.custom import Custom
from d5ray.distributed.topologies.mixing import MetropolisHastings, Uniform
from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import canonical, digest


def weighted(kind: Any, *edges: tuple[int, int, Any], own: tuple[Any, ...] = ()) -> Any:
    graph = kind()
    graph.add_weighted_edges_from(edges)
    for rank, weight in enumerate(own):
        graph.add_node(rank, weight=weight)
    return graph


@given(
    agents=st.integers(1, 15), chance=st.floats(0, 1), seed=st.integers(0, 999), directed=st.booleans()
)  # fmt: skip
@settings(max_examples=50, deadline=None, derandomize=True)
def test_the_edges_are_those_of_the_graph(agents: int, chance: float, seed: int, directed: bool) -> None:
    """Neighbours are networkx' successors and predecessors; the graph given is not kept."""
    graph = networkx.gnp_random_graph(agents, chance, seed=seed, directed=directed)
    topology = Custom(graph)
    assert (topology.agents, topology.directed) == (agents, directed)
    for rank in range(agents):
        assert topology.out_neighbors(rank) == tuple(sorted(graph.adj[rank]))
        assert topology.in_neighbors(rank) == tuple(sorted(graph.pred[rank] if directed else graph.adj[rank]))
    before = digest(topology)
    graph.add_edge(agents, agents + 1)
    assert digest(topology) == before and topology.agents == agents


def test_equality_goes_by_nodes_and_edges() -> None:
    """Not by the order in which they were given, nor by names and colours."""
    one = networkx.Graph([(0, 1), (1, 2)])
    other = networkx.Graph(name="other")
    other.add_nodes_from([2, 1, 0], colour="red")
    other.add_edges_from([(2, 1), (1, 0)], label="x")
    assert Custom(one) == Custom(other) and hash(Custom(one)) == hash(Custom(other))
    assert Custom(one) != Custom(networkx.DiGraph([(0, 1), (1, 2)]))
    assert Custom(one) != Custom(one, mixing=Uniform())
    assert repr(Custom(one, mixing=Uniform())) == "Custom(<Graph of 3 nodes and 2 edges>, mixing=Uniform())"
    assert canonical(Custom(one))["links"]["edges"] == [[0, 1], [1, 2]]
    numbers = networkx.Graph([(np.int64(0), np.int64(1)), (np.int64(1), np.int64(2))])
    assert digest(Custom(numbers)) == digest(Custom(one))


# -- weights -------------------------------------------------------------------------------------------------


def test_weights_of_undirected_edges_go_both_ways() -> None:
    """The rest of each agent stays its own: symmetric and doubly stochastic."""
    topology = Custom(weighted(networkx.Graph, (0, 1, 0.5), (2, 1, 0.25)))
    np.testing.assert_array_equal(topology.weights(), [[0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0.25, 0.75]])


def test_weights_of_directed_edges_are_what_the_receiver_gives() -> None:
    """Edge (j, i) is W[i, j]; what j does not send it keeps, so that columns sum to one."""
    topology = Custom(weighted(networkx.DiGraph, (0, 1, 0.5), (1, 0, 0.25), (1, 2, 0.75), (2, 0, 0.125)))
    expected = [[0.5, 0.25, 0.125], [0.5, 0, 0], [0, 0.75, 0.875]]
    np.testing.assert_array_equal(topology.weights(), expected)


def test_weights_of_nodes_are_their_own() -> None:
    """With them the weights may be row-stochastic alone."""
    topology = Custom(weighted(networkx.DiGraph, (0, 1, 0.75), (1, 0, 0.5), own=(0.5, 0.25)))
    np.testing.assert_array_equal(topology.weights(), [[0.5, 0.5], [0.75, 0.25]])


def test_a_given_mixing_ignores_weights() -> None:
    """Whatever they are, and in the hash, too."""
    distances = weighted(networkx.Graph, (0, 1, 310.0), (1, 2, -1))
    topology = Custom(distances, mixing=MetropolisHastings())
    plain = Custom(networkx.path_graph(3), mixing=MetropolisHastings())
    assert topology == plain and digest(topology) == digest(plain)
    changed = replace(Custom(weighted(networkx.Graph, (0, 1, 0.5), (1, 2, 0.5))), mixing=MetropolisHastings())
    assert changed == plain and digest(changed) == digest(plain)
    np.testing.assert_array_equal(topology.weights(), Custom(networkx.path_graph(3)).weights())


# -- mistakes ------------------------------------------------------------------------------------------------

PATH = networkx.path_graph(3)
WRONG: list[tuple[Any, str]] = [
    ([(0, 1)], "Custom got [(0, 1)]: it needs a Graph or DiGraph of networkx"),
    (networkx.MultiGraph([(0, 1)]),
     "Custom got a MultiGraph, in which an edge may occur twice: take networkx.Graph(graph) or "
     "networkx.DiGraph(graph)"),
    (networkx.Graph(["ab", "bc"]),
     "the nodes of a Custom topology are the ranks 0 to 2, found 'a', 'b', 'c': number them, for example "
     "with networkx.convert_node_labels_to_integers(graph)"),
    (networkx.path_graph(range(1, 7)),
     "the nodes of a Custom topology are the ranks 0 to 5, found 1, 2, 3, 4, …: number them, for example "
     "with networkx.convert_node_labels_to_integers(graph)"),
    (networkx.Graph(), "agents is 0: it must be an integer of at least 1"),
    (networkx.Graph([(0, 1), (1, 1)]),
     "the graph has a self-loop at 1: everyone keeps a share anyway, take it out (a share of your choice is "
     "the node's attribute 'weight')"),
    (networkx.compose(weighted(networkx.Graph, (0, 1, 0.5)), PATH),
     "edge (1, 2) has no 'weight', others have: give one to every edge, or take mixing=..."),
    (weighted(networkx.Graph, (0, 1, 0.5), own=(0.5,)),
     "node 1 has no 'weight', others have: give one to every node, or take mixing=..."),
    *((weighted(networkx.Graph, (1, 0, wrong)),
       f"edge (0, 1) has weight {wrong!r}: a mixing weight is a number from 0 to 1; where it means something "
       "else, take mixing=MetropolisHastings()") for wrong in (1.5, -0.1, "0.5", True, float("nan"), None)),
    (weighted(networkx.Graph, (0, 1, 0.75), (1, 2, 0.5)),
     "the weights of what 1 sends sum to 1.25: at most 1 can be sent, or give every node a 'weight' "
     "of its own"),
    (weighted(networkx.DiGraph, (0, 1, 0.75), (0, 2, 0.5)),
     "the weights of what 0 sends sum to 1.25: at most 1 can be sent, or give every node a 'weight' "
     "of its own"),
]  # fmt: skip


@pytest.mark.parametrize(("graph", "expected"), WRONG, ids=[text[:50] for _, text in WRONG])
def test_graphs_that_cannot_be_are_refused(graph: Any, expected: str) -> None:
    """What was found, what is needed, what to do, in these words."""
    with pytest.raises(ConfigurationError) as caught:
        Custom(graph)
    assert str(caught.value) == expected


def test_weights_that_sum_to_nothing_are_refused_when_used() -> None:
    """Own weights that make neither rows nor columns sum to one."""
    topology = Custom(weighted(networkx.Graph, (0, 1, 0.5), own=(0.25, 0.25)))
    with pytest.raises(
        ConfigurationError, match=r"the edges' attribute 'weight' gives Custom.* rows sum to 0.75"
    ):
        topology.check()
