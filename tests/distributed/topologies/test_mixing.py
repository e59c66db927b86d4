"""Claims about mixing weights on random graphs."""

from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.distributed.topologies.custom import Custom
from d5ray.distributed.topologies.mixing import (
    ColumnStochastic,
    MetropolisHastings,
    Mixing,
    Uniform,
    sums,
    sums_to_one,
)
from d5ray.distributed.topologies.undirected import Star
from d5ray.errors import ConfigurationError


@st.composite
def graphs(draw: st.DrawFn, directed: bool) -> Any:
    """A random graph, connected or not."""
    agents, chance = draw(st.integers(1, 20)), draw(st.floats(0, 1))
    return networkx.gnp_random_graph(agents, chance, seed=draw(st.integers(0, 999)), directed=directed)


def closed_neighbourhoods(graph: Any) -> Any:
    """[i, j]: j sends to i, or is i."""
    return networkx.to_numpy_array(graph, nodelist=range(len(graph))).T.astype(bool) | np.eye(
        len(graph), dtype=bool
    )


@given(graphs(directed=False))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_metropolis_hastings_weights_are_symmetric_and_doubly_stochastic(graph: Any) -> None:
    """On every undirected graph, and positive on its closed neighbourhoods; each edge has its formula."""
    weights = Custom(graph, mixing=MetropolisHastings()).weights()
    np.testing.assert_array_equal(weights, weights.T)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-14)
    np.testing.assert_array_equal(weights > 1e-15, closed_neighbourhoods(graph))
    for i, j in graph.edges:
        assert weights[i, j] == pytest.approx(1 / (1 + max(graph.degree[i], graph.degree[j])), rel=1e-15)


@pytest.mark.parametrize("directed", [False, True])
@given(data=st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_uniform_rows_and_column_stochastic_columns_are_the_same_numbers(
    directed: bool, data: st.DataObject
) -> None:
    """In each row, or column: one over the size of the closed neighbourhood, everywhere on it."""
    graph = data.draw(graphs(directed))
    closed = closed_neighbourhoods(graph)
    rows = Custom(graph, mixing=Uniform()).weights()
    columns = Custom(graph, mixing=ColumnStochastic()).weights()
    for rank in range(len(graph)):
        np.testing.assert_allclose(rows[rank][closed[rank]], 1 / closed[rank].sum())
        np.testing.assert_allclose(columns[:, rank][closed[:, rank]], 1 / closed[:, rank].sum())
    np.testing.assert_array_equal(rows > 0, closed)
    np.testing.assert_array_equal(columns > 0, closed)


@given(graphs(directed=True))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_column_stochastic_mixing_loses_nothing(graph: Any) -> None:
    """Σ_i (W x)_i = Σ_j x_j, whatever the directed graph."""
    values = np.random.default_rng(len(graph)).standard_normal(len(graph))
    mixed = Custom(graph, mixing=ColumnStochastic()).weights() @ values
    assert mixed.sum() == pytest.approx(values.sum(), abs=1e-12)


@pytest.mark.parametrize("degree", [2, 3, 4])
def test_all_mixings_agree_on_regular_graphs(degree: int) -> None:
    """Each weight is 1 / (1 + degree): then uniform weights are doubly stochastic too."""
    graph = networkx.random_regular_graph(degree, 12, seed=1)
    mixings: list[Mixing] = [MetropolisHastings(), Uniform(), ColumnStochastic()]
    for mixing in mixings:
        weights = Custom(graph, mixing=mixing).weights()
        np.testing.assert_allclose(weights[weights > 1e-15], 1 / (1 + degree), rtol=1e-14)


def test_uniform_weights_of_a_star() -> None:
    """By hand: the center takes the mean of all four, the others that of two; columns do not sum to one."""
    weights = Star(4, mixing=Uniform()).weights()
    np.testing.assert_allclose(
        weights,
        [[1 / 4, 1 / 4, 1 / 4, 1 / 4], [1 / 2, 1 / 2, 0, 0], [1 / 2, 0, 1 / 2, 0], [1 / 2, 0, 0, 1 / 2]],
    )
    assert (sums(weights, axis=0), sums(weights, axis=1)) == ("0.75..1.75", "1")
    assert (sums_to_one(weights, axis=0), sums_to_one(weights, axis=1)) == (False, True)


def test_metropolis_hastings_refuses_directed_graphs() -> None:
    """And takes a DiGraph whose edges all go both ways."""
    graph = networkx.DiGraph([(0, 1), (1, 0), (1, 2), (2, 1)])
    expected = Custom(networkx.path_graph(3)).weights()
    np.testing.assert_array_equal(Custom(graph, mixing=MetropolisHastings()).weights(), expected)
    graph.remove_edge(2, 1)
    with pytest.raises(ConfigurationError, match=r"is directed \(1 sends to 2, which does not send back\)"):
        Custom(graph, mixing=MetropolisHastings()).weights()
