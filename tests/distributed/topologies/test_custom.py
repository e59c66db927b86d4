"""Claims about topologies from graphs of networkx, and about mixing weights on random ones."""

from dataclasses import replace
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import canonical, digest
from d5ray.topologies import ColumnStochastic, Custom, MetropolisHastings, Uniform


def weighted(kind: Any, *edges: tuple[int, int, Any], own: tuple[Any, ...] = ()) -> Any:
    graph = kind()
    graph.add_weighted_edges_from(edges)
    for rank, weight in enumerate(own):
        graph.add_node(rank, weight=weight)
    return graph


@given(
    agents=st.integers(1, 20), chance=st.floats(0, 1), seed=st.integers(0, 999), directed=st.booleans()
)  # fmt: skip
@settings(max_examples=100, deadline=None, derandomize=True)
def test_edges_and_weights_are_those_of_the_graph(
    agents: int, chance: float, seed: int, directed: bool
) -> None:
    """Neighbours are networkx' successors and predecessors; the graph given is not kept.

    Uniform rows, or stochastic columns, are one over the size of the closed neighbourhood, everywhere on it;
    Metropolis-Hastings weights are 1 / (1 + max degree) on edges, symmetric and doubly stochastic.
    """
    graph = networkx.gnp_random_graph(agents, chance, seed=seed, directed=directed)
    topology = Custom(graph)
    assert (topology.agents, topology.directed) == (agents, directed)
    closed = np.eye(agents, dtype=bool)  # [i, j]: j sends to i, or is i
    for rank in range(agents):
        assert topology.out_neighbors(rank) == tuple(sorted(graph.adj[rank]))
        assert topology.in_neighbors(rank) == tuple(sorted(graph.pred[rank] if directed else graph.adj[rank]))
        closed[list(graph.adj[rank]), rank] = True
    rows, columns = (Custom(graph, mixing=each).weights() for each in (Uniform(), ColumnStochastic()))
    np.testing.assert_allclose(rows, closed / closed.sum(axis=1, keepdims=True), rtol=1e-14)
    np.testing.assert_allclose(columns, closed / closed.sum(axis=0), rtol=1e-14)
    if not directed:
        weights, degree = Custom(graph, mixing=MetropolisHastings()).weights(), closed.sum(axis=0)
        expected = np.where(closed, 1 / np.maximum.outer(degree, degree), 0.0)
        np.fill_diagonal(expected, 0.0)
        np.fill_diagonal(expected, 1 - expected.sum(axis=1))
        np.testing.assert_array_equal(weights, weights.T)
        np.testing.assert_allclose(weights, expected, rtol=1e-14, atol=1e-15)
    before = digest(topology)
    graph.add_edge(agents, agents + 1)
    assert digest(topology) == before and topology.agents == agents


def test_equality_goes_by_nodes_and_edges() -> None:
    """Not by the order in which they were given, nor by names, colours and weights that are ignored."""
    one, other = networkx.Graph([(0, 1), (1, 2)]), networkx.Graph(name="other")
    other.add_nodes_from([2, 1, 0], colour="red")
    other.add_edges_from([(2, 1), (1, 0)], label="x")
    assert Custom(one) == Custom(other) and hash(Custom(one)) == hash(Custom(other))
    assert Custom(one) != Custom(networkx.DiGraph([(0, 1), (1, 2)]))
    assert Custom(one) != Custom(one, mixing=Uniform())
    assert repr(Custom(one, mixing=Uniform())) == "Custom(<Graph of 3 nodes and 2 edges>, mixing=Uniform())"
    assert canonical(Custom(one))["links"]["edges"] == [[0, 1], [1, 2]]
    numbers = networkx.Graph([(np.int64(0), np.int64(1)), (np.int64(1), np.int64(2))])
    assert digest(Custom(numbers)) == digest(Custom(one))
    plain = Custom(one, mixing=MetropolisHastings())
    distances = Custom(weighted(networkx.Graph, (0, 1, 310.0), (1, 2, -1)), mixing=MetropolisHastings())
    changed = replace(Custom(weighted(networkx.Graph, (0, 1, 0.5), (1, 2, 0.5))), mixing=MetropolisHastings())
    assert distances == changed == plain and digest(distances) == digest(changed) == digest(plain)
    np.testing.assert_array_equal(distances.weights(), Custom(one).weights())


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (weighted(networkx.Graph, (0, 1, 0.5), (2, 1, 0.25)),
         [[0.5, 0.5, 0], [0.5, 0.25, 0.25], [0, 0.25, 0.75]]),
        (weighted(networkx.DiGraph, (0, 1, 0.5), (1, 0, 0.25), (1, 2, 0.75), (2, 0, 0.125)),
         [[0.5, 0.25, 0.125], [0.5, 0, 0], [0, 0.75, 0.875]]),
        (weighted(networkx.DiGraph, (0, 1, 0.75), (1, 0, 0.5), own=(0.5, 0.25)), [[0.5, 0.5], [0.75, 0.25]]),
    ],
    ids=["undirected", "directed", "of nodes"],
)  # fmt: skip
def test_weights_of_edges_are_what_the_receiver_gives(graph: Any, expected: Any) -> None:
    """Edge (j, i) is W[i, j], undirected both ways; what j does not send it keeps, but for its own weight."""
    np.testing.assert_array_equal(Custom(graph).weights(), expected)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ([(0, 1)], "needs a Graph or DiGraph of networkx"),
        (networkx.MultiGraph([(0, 1)]), "an edge may occur twice"),
        (networkx.Graph(["ab", "bc"]), "ranks 0 to 2, found 'a', 'b', 'c': number them"),
        (networkx.path_graph(range(1, 7)), "ranks 0 to 5, found 1, 2, 3, 4, …"),
        (networkx.Graph(), "agents is 0"),
        (networkx.Graph([(0, 1), (1, 1)]), "self-loop at 1"),
        (networkx.compose(weighted(networkx.Graph, (0, 1, 0.5)), networkx.path_graph(3)),
         r"edge \(1, 2\) has no 'weight'"),
        (weighted(networkx.Graph, (0, 1, 0.5), own=(0.5,)), "node 1 has no 'weight'"),
        *((weighted(networkx.Graph, (1, 0, wrong)), rf"edge \(0, 1\) has weight {wrong!r}")
          for wrong in (1.5, -0.1, "0.5", True, float("nan"), None)),
        (weighted(networkx.Graph, (0, 1, 0.75), (1, 2, 0.5)), "what 1 sends sum to 1.25"),
        (weighted(networkx.DiGraph, (0, 1, 0.75), (0, 2, 0.5)), "what 0 sends sum to 1.25"),
        (weighted(networkx.Graph, (0, 1, 0.5), own=(0.25, 0.25)), "'weight' gives Custom.* rows sum to 0.75"),
    ],
)  # fmt: skip
def test_graphs_that_cannot_be_are_refused(graph: Any, words: str) -> None:
    """When the topology is made, or its weights are."""
    with pytest.raises(ConfigurationError, match=words):
        Custom(graph).check()
