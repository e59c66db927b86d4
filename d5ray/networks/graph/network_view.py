"""NetworkView: what one can ask of a network: its nodes, tensors, shapes and values"""

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from d5ray.errors import ConfigurationError
from d5ray.networks.graph import edits, inference
from d5ray.networks.graph.graph import Array, Graph, check_names, in_order, suggestion
from d5ray.networks.graph.inference import Inferred
from d5ray.networks.graph.kinds import check_state, state_of
from d5ray.networks.graph.schemas import check_supported
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor


class Holder(Protocol):
    """An object that holds values of a network's tensors newer than the network's own."""

    def fetch(self, name: str) -> Array | None:
        """The value of a tensor, None where it holds none."""


class NetworkView:
    """The half of a `Network` that changes nothing, but for what holds its values."""

    def __init__(self, graph: Graph) -> None:
        self._state = Inferred(graph)
        self._pending: Graph | None = None
        self._holder: Holder | None = None
        self.changes_so_far = 0  # counted, so that an executor knows when to look

    @property
    def graph(self) -> Graph:
        """The whole network at once, as data that does not change."""
        return self._settled()

    @property
    def name(self) -> str:
        """The network's name, which ONNX files and error messages show."""
        return self._graph.name

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in an order in which each follows those it reads from."""
        return self._graph.nodes

    @property
    def inputs(self) -> Mapping[str, TensorDescriptor]:
        """The types and shapes of the tensors that come from outside, by name; read-only."""
        return MappingProxyType(self._graph.inputs)

    @property
    def outputs(self) -> Mapping[str, TensorDescriptor]:
        """The types and shapes of the network's outputs, by name, but for those whose type is unknown."""
        known = self.descriptors
        return MappingProxyType({name: known[name] for name in self._graph.outputs if name in known})

    @property
    def parameters(self) -> Mapping[str, Array]:
        """The values that are trained, by name."""
        return MappingProxyType(self._graph.parameters)

    @property
    def constants(self) -> Mapping[str, Array]:
        """The values that are not trained and never change, by name."""
        return MappingProxyType(self._graph.constants)

    @property
    def state(self) -> Mapping[str, str]:
        """The state by name, with the output of a node that takes its place in a training step."""
        return MappingProxyType(state_of(self._graph))

    @property
    def state_values(self) -> Mapping[str, Array]:
        """The values of the tensors in `state`, before any step."""
        return MappingProxyType(self._graph.state_values)

    @property
    def descriptors(self) -> Mapping[str, TensorDescriptor]:
        """Type and shape of every tensor of which they are known, by its name."""
        self._settled()
        return self._state.descriptors

    def node(self, name: str) -> Node:
        """The node of this name. Raises `ConfigurationError` where there is none."""
        for node in self._graph.nodes:
            if node.name == name:
                return node
        raise ConfigurationError(
            f"the network {self.name!r} has no node {name!r}: "
            f"{suggestion(name, [n.name for n in self.nodes])}"
        )

    def producer(self, tensor: str) -> Node | None:
        """The node that makes a tensor, None where it comes from outside."""
        self._check_tensor(tensor)
        return self._graph.producers().get(tensor)

    def readers(self, tensor: str) -> tuple[Node, ...]:
        """The nodes that read a tensor."""
        self._check_tensor(tensor)
        return tuple(self._graph.readers().get(tensor, ()))

    def site(
        self, node: Node | str, evaluating: bool = False, random: Any = None, collectives: Any = None
    ) -> NodeContext:
        """The context of a node, as an executor hands it to an implementation."""
        at = inference.context_of(self._own(node), self._graph.constants, self.descriptors)
        return dataclasses.replace(at, evaluating=evaluating, random=random, collectives=collectives)

    def fetch_tensors(self, names: Iterable[str]) -> list[Array]:
        """The values of parameters, constants and state, which the network holds. Not copied."""
        held = self._graph.values()
        found = []
        for name in names:
            value = None if self._holder is None else self._holder.fetch(name)
            if value is not None:
                found.append(value)
                continue
            if name not in held:
                self._check_tensor(name)
                raise ConfigurationError(
                    f"the network holds no value for {name!r}, which is computed: ask an executor's inference"
                )
            found.append(held[name])
        return found

    def attach(self, holder: Holder) -> None:
        """Let `fetch_tensors` ask this first, which trains the network: an executor."""
        self._holder = holder

    def gradient(self, loss: str = "loss") -> list[tuple[str, str]]:
        """The parameters that a loss depends on, each with the name of its gradient, in their order."""
        self._check_tensor(loss)
        producers = self._graph.producers()
        reached: set[str] = set()
        waiting = [loss]
        while waiting:
            name = waiting.pop()
            if name and name not in reached:
                reached.add(name)
                if name in producers:
                    waiting.extend(producers[name].inputs)
        taken = set(self._graph.tensors())
        return [
            (name, edits.free(f"{name}_grad", taken)) for name in self._graph.parameters if name in reached
        ]

    @property
    def _graph(self) -> Graph:
        return self._state.graph if self._pending is None else self._pending

    def _settled(self) -> Graph:
        """The graph, in which nothing is open."""
        if self._pending is not None:
            self._state = checked(self._pending, self._state)
            self._pending = self._state.graph
        return self._state.graph

    def _own(self, node: Node | str) -> Node:
        """The network's own node that is meant."""
        found = self.node(node if isinstance(node, str) else node.name)
        if isinstance(node, Node) and found is not node and str(found) != str(node):
            raise ConfigurationError(f"the node {node} is not one of the network {self.name!r}")
        return found

    def _check_tensor(self, name: str) -> None:
        self._check_among("tensor", name, set(self._graph.tensors()))

    def _check_among(self, kind: str, name: str, names: Iterable[str]) -> None:
        if name not in names:
            raise ConfigurationError(
                f"the network {self.name!r} has no {kind} {name!r}: {suggestion(name, list(names))}"
            )


def checked(graph: Graph, before: Inferred) -> Inferred:
    """The graph in order, with descriptors. Raises `ConfigurationError` where it is not valid."""
    check_supported(graph.nodes)
    check_names(graph)
    graph = dataclasses.replace(graph, nodes=in_order(graph))
    check_state(graph)
    return inference.infer(graph, before)
