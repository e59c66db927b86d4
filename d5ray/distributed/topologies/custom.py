"""A topology from a graph of networkx"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np

from d5ray.distributed.topologies.graph import CommunicationGraph, Matrix
from d5ray.distributed.topologies.mixing import Mixing
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError


@final
@dataclass(frozen=True)
class GraphData:
    """A graph as plain data: what `Custom` keeps of the one it was given.

    edges: (sender, receiver), sorted; of an undirected graph each once, the smaller rank first.
    weights: of the edges in their order, or empty. own: of the agents, or empty.
    """

    agents: int
    edges: tuple[tuple[int, int], ...]
    directed: bool
    weights: tuple[float, ...] = ()
    own: tuple[float, ...] = ()


@final
@dataclass(frozen=True, repr=False)
class Custom(Topology):
    """A graph of networkx: `Custom(networkx.petersen_graph())`, or a `DiGraph` with edges sender → receiver.

    Nodes are the ranks 0 to n − 1. Where the edges have the attribute "weight" (all or none, from 0 to 1),
    those are the weights W, unless `mixing` is given: the edge (j, i) has W[i, j], of an undirected graph
    also W[j, i]. The diagonal is the nodes' attribute "weight" (all or none); without it everyone keeps what
    it does not send, W[j, j] = 1 − Σ_i W[i, j], so that columns sum to one.
    """

    links: Any  # given: a Graph or DiGraph; kept: `GraphData`
    agents: int = field(init=False)
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        links = self.links if isinstance(self.links, GraphData) else _links(self.links, self.mixing is None)
        if self.mixing is not None:
            links = GraphData(links.agents, links.edges, links.directed)
        object.__setattr__(self, "links", links)
        object.__setattr__(self, "agents", links.agents)
        super().__post_init__()

    @property
    def directed(self) -> bool:
        return bool(self.links.directed)

    @property
    def default_mixing(self) -> Mixing:
        return _Given(self.links) if self.links.weights else super().default_mixing

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return self._targets[rank]

    @cached_property
    def _targets(self) -> tuple[tuple[int, ...], ...]:
        targets: list[set[int]] = [set() for _ in range(self.agents)]
        for sender, receiver in self.links.edges:
            targets[sender].add(receiver)
            if not self.directed:
                targets[receiver].add(sender)
        return tuple(tuple(sorted(some)) for some in targets)

    def __repr__(self) -> str:
        mixing = "" if self.mixing is None else f", mixing={self.mixing!r}"
        kind = "DiGraph" if self.directed else "Graph"
        return f"Custom(<{kind} of {self.agents} nodes and {len(self.links.edges)} edges>{mixing})"


@final
@dataclass(frozen=True, repr=False)
class _Given(Mixing):
    links: GraphData

    def matrix(self, topology: CommunicationGraph, round: int) -> Matrix:
        weights = np.zeros((self.links.agents, self.links.agents))
        senders, receivers = np.array(self.links.edges).T
        weights[receivers, senders] = self.links.weights
        if not self.links.directed:
            weights[senders, receivers] = self.links.weights
        np.fill_diagonal(weights, self.links.own or np.maximum(1.0 - weights.sum(axis=0), 0.0))
        return weights

    def __repr__(self) -> str:
        return "the edges' attribute 'weight'"


def _links(graph: Any, weighted: bool) -> GraphData:
    import networkx  # noqa: PLC0415 - a quarter of a second, which only those pay who give a graph

    if not isinstance(graph, networkx.Graph):
        raise ConfigurationError(f"Custom got {graph!r}: it needs a Graph or DiGraph of networkx")
    if graph.is_multigraph():
        raise ConfigurationError(
            f"Custom got a {type(graph).__name__}, in which an edge may occur twice: take "
            "networkx.Graph(graph) or networkx.DiGraph(graph)"
        )
    agents = len(graph)
    if set(graph) != set(range(agents)):
        some = ", ".join(repr(node) for node in list(graph)[:4]) + (", …" if agents > 4 else "")
        raise ConfigurationError(
            f"the nodes of a Custom topology are the ranks 0 to {agents - 1}, found {some}: number them, for "
            "example with networkx.convert_node_labels_to_integers(graph)"
        )
    if loops := list(networkx.nodes_with_selfloops(graph)):
        raise ConfigurationError(
            f"the graph has a self-loop at {loops[0]}: everyone keeps a share anyway, take it out (a share "
            "of your choice is the node's attribute 'weight')"
        )
    directed = graph.is_directed()
    attributes = {
        (int(a), int(b)) if directed else (min(int(a), int(b)), max(int(a), int(b))): data
        for a, b, data in graph.edges(data=True)
    }
    edges = tuple(sorted(attributes))
    if not weighted:
        return GraphData(agents, edges, directed)
    weights = _weights_of("edge", {edge: attributes[edge] for edge in edges})
    own = _weights_of("node", {rank: graph.nodes[rank] for rank in range(agents)}) if weights else ()
    links = GraphData(agents, edges, directed, weights, own)
    if weights and not own:
        _check_shares(links)
    return links


def _weights_of(kind: str, attributes: Mapping[Any, Mapping[str, Any]]) -> tuple[float, ...]:
    """The attribute "weight" of all edges or nodes; empty where none has it."""
    given = {key: data["weight"] for key, data in attributes.items() if "weight" in data}
    if given and len(given) < len(attributes):
        lacking = next(key for key in attributes if key not in given)
        raise ConfigurationError(
            f"{kind} {lacking} has no 'weight', others have: give one to every {kind}, or take mixing=..."
        )
    for key, weight in given.items():
        number = isinstance(weight, (int, float, np.number)) and not isinstance(weight, bool)
        if not number or not 0 <= weight <= 1:
            raise ConfigurationError(
                f"{kind} {key} has weight {weight!r}: a mixing weight is a number from 0 to 1; where it "
                "means something else, take mixing=MetropolisHastings()"
            )
    return tuple(float(weight) for weight in given.values())


def _check_shares(links: GraphData) -> None:
    sent = np.zeros(links.agents)
    for (sender, receiver), weight in zip(links.edges, links.weights, strict=True):
        sent[sender] += weight
        sent[receiver] += 0.0 if links.directed else weight
    most = int(sent.argmax())
    if sent[most] > 1 + 1e-9:
        raise ConfigurationError(
            f"the weights of what {most} sends sum to {sent[most]:.6g}: at most 1 can be sent, or give every "
            "node a 'weight' of its own"
        )
