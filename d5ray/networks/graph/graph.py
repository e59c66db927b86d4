"""Graph: what a network consists of, as data that nobody changes, in an order in which it can be computed."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError, nearest
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

Array = np.ndarray[Any, Any]
Values = Mapping[str, Array]

MOST_NAMES = 12  # that an error lists
NOTHING: Mapping[str, Any] = MappingProxyType({})


@final
@dataclass(frozen=True)
class Graph:
    """Nodes, the tensors that come from outside, and the names of those that are asked for."""

    name: str = "network"
    nodes: tuple[Node, ...] = ()
    inputs: Mapping[str, TensorDescriptor] = field(default_factory=lambda: NOTHING)
    outputs: tuple[str, ...] = ()
    parameters: Values = field(default_factory=lambda: NOTHING)
    constants: Values = field(default_factory=lambda: NOTHING)
    state_values: Values = field(default_factory=lambda: NOTHING)

    def values(self) -> dict[str, Array]:
        """All tensors whose value the graph holds."""
        return {**self.parameters, **self.constants, **self.state_values}

    def tensors(self) -> Iterator[str]:
        """The names of all tensors: those from outside, then those that nodes make."""
        yield from (*self.inputs, *self.parameters, *self.constants, *self.state_values)
        yield from (name for node in self.nodes for name in node.outputs if name)

    def producers(self) -> dict[str, Node]:
        """The node that makes each tensor."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    def readers(self) -> dict[str, list[Node]]:
        """The nodes that read each tensor."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    found.setdefault(name, []).append(node)
        return found


def suggestion(name: str, names: Collection[str]) -> str:
    """The end of an error about an unknown name: the nearest one, all where they are few, or how many."""
    found = nearest(name, names)
    return found if len(names) <= MOST_NAMES or found.startswith("did") else f"there are {len(names)} others"


def check_names(graph: Graph) -> None:
    """Raise `ConfigurationError` unless every tensor is made once, and every node has a name of its own."""
    makers: dict[str, str | Node] = {}

    def enter(name: str, maker: str | Node) -> None:
        if name in makers:
            first, second = (
                f"an output of the node {each}" if isinstance(each, Node) else each
                for each in (makers[name], maker)
            )
            raise ConfigurationError(
                f"the tensor {name!r} is made twice: it is {first} and {second}; give one of them another "
                "name"
            )
        makers[name] = maker

    for kind, names in (
        ("an input of the network", graph.inputs),
        ("a parameter", graph.parameters),
        ("a constant", graph.constants),
        ("a state", graph.state_values),
    ):
        for name in names:
            enter(name, kind)
    seen: dict[str, Node] = {}
    for node in graph.nodes:
        for name in node.outputs:
            if name:
                enter(name, node)
        if node.name in seen:
            raise ConfigurationError(
                f"two nodes are called {node.name!r}: {seen[node.name]} and {node}; give one another name"
            )
        seen[node.name] = node
    if len(set(graph.outputs)) < len(graph.outputs):
        twice = next(name for name, count in Counter(graph.outputs).items() if count > 1)
        raise ConfigurationError(f"the network has its output {twice!r} twice: name it once")
    for name in graph.outputs:
        if name not in makers:
            raise ConfigurationError(
                f"the network's output {name!r} is made by no node: {suggestion(name, makers)}"
            )


def in_order(graph: Graph) -> tuple[Node, ...]:
    """The nodes so that each follows those it reads from; as they stand, as far as that is possible.

    Raises `ConfigurationError` where a tensor is made by nobody, or nodes read from each other in a circle.
    """
    producers = graph.producers()
    known = {*graph.inputs, *graph.parameters, *graph.constants, *graph.state_values}
    for node in graph.nodes:
        for slot, name in enumerate(node.inputs):
            if name and name not in known and name not in producers:
                raise ConfigurationError(
                    f"the node {node} reads the tensor {name!r} (input {slot}), which nobody makes: "
                    f"{suggestion(name, {*known, *producers})}"
                )
    return tuple(_sorted(graph.nodes, producers))


def _sorted(nodes: Iterable[Node], producers: Mapping[str, Node]) -> Iterator[Node]:
    """Depth first, without recursion: a network may be deeper than Python's stack."""
    done: set[str] = set()
    path: dict[str, Node] = {}  # by name: those that wait for what they read
    for start in nodes:
        if start.name in done:
            continue
        path[start.name] = start
        stack = [(start, iter(start.inputs))]
        while stack:
            node, left = stack[-1]
            for name in left:
                other = producers.get(name)
                if other is None or other.name in done:
                    continue
                if other.name in path:
                    raise ConfigurationError(_circle(list(path.values()), other))
                path[other.name] = other
                stack.append((other, iter(other.inputs)))
                break
            else:
                stack.pop()
                path.pop(node.name)
                done.add(node.name)
                yield node


def _circle(path: list[Node], other: Node) -> str:
    """The message for a path whose last node reads from another one of it."""
    circle = path[[each.name for each in path].index(other.name) :]
    names = [str(each) for each in reversed([*circle, circle[0]])]
    if len(names) > MOST_NAMES:
        names[MOST_NAMES - 2 : -1] = [f"({len(names) - MOST_NAMES + 1} others)"]
    way = " -> ".join(names)
    return (
        f"the graph has a circle: each of these nodes waits for another: {way}; "
        f"let {path[-1]} read something else than what {other} makes"
    )
