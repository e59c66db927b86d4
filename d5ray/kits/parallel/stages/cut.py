"""Cut: a network divided into stages by hand; and what no cut takes apart"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import final

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.plan import depending
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node


class Cutting(ABC):
    """A way to divide a network into stages: `Cut` by hand, `Balanced` by what its operators take."""

    @abstractmethod
    def stages_of(self, network: Network) -> dict[str, int]:
        """The stage of every node, by its name. Raises `ConfigurationError` where it does not fit."""


@final
@dataclass(frozen=True)
class Cut(Cutting):
    """A cut into stages by the names of nodes.

    nodes: the first nodes of the second and further stages, in the order of the network; nodes that depend on
    no input, such as a transposed weight, go with the node that reads them. Or a dictionary from nodes' names
    to stages, from 0: any other node is in the latest stage of the nodes that it reads, in stage 0 if it
    reads only inputs, and in the stage of its first reader if it depends on no input.

    >>> Cut(("conv2", "fc1"))
    Cut(nodes=('conv2', 'fc1'))
    """

    nodes: Sequence[str] | Mapping[str, int]

    def __post_init__(self) -> None:
        if isinstance(self.nodes, Mapping):
            for name, stage in self.nodes.items():
                if not isinstance(name, str) or not isinstance(stage, int) or isinstance(stage, bool):
                    raise ConfigurationError(
                        f"a cut has {name!r}: {stage!r}, expected the name of a node and its stage, a whole "
                        "number from 0 up"
                    )
            return
        given = (self.nodes,) if isinstance(self.nodes, str) else self.nodes
        if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
            raise ConfigurationError(
                f"a cut is {self.nodes!r}, expected the names of the nodes with which stages begin, such as "
                "('conv2', 'fc1'), or a dictionary from names of nodes to stages"
            )
        object.__setattr__(self, "nodes", tuple(given))

    def stages_of(self, network: Network) -> dict[str, int]:
        for name in self.nodes:
            network.node(name)
        if isinstance(self.nodes, Mapping):
            return _spread(network, self.nodes)
        return _divided(network, tuple(self.nodes))


def _divided(network: Network, begins: tuple[str, ...]) -> dict[str, int]:
    """Contiguous stages, the k-th of which begins with the group of the k-th of these nodes."""
    own = groups(network)
    places = {node.name: place for place, group in enumerate(own) for node in group}
    if begins and places[begins[0]] == 0:
        raise ConfigurationError(
            f"the cut leaves stage 0 without operators: with {network.node(begins[0])} the network begins, "
            "and stage 0 anyway"
        )
    for before, after in pairwise(begins):
        if places[before] > places[after]:
            raise ConfigurationError(
                f"the cut leaves a cycle: {after!r} comes before {before!r} in the network, and its stage "
                "would feed an earlier one; name them in the network's order"
            )
        if places[before] == places[after]:
            raise ConfigurationError(
                f"the cut leaves a stage without operators: those that begin with {before!r} and {after!r} "
                "are one"
            )
    stages = [bisect_right([places[name] for name in begins], place) for place in range(len(own))]
    return {node.name: stage for group, stage in zip(own, stages, strict=True) for node in group}


def _spread(network: Network, named: Mapping[str, int]) -> dict[str, int]:
    """The stages that are named, and those that follow from them."""
    found: dict[str, int] = {}
    makers: dict[str, int] = {}
    moving = depending(enumerate(network.nodes), network.inputs)
    for node in network.nodes:
        known = [makers[name] for name in node.inputs if name in makers]
        if node.name in named:
            found[node.name] = named[node.name]
        elif known or not moving.isdisjoint(node.inputs):
            found[node.name] = max(known, default=0)
        else:
            continue
        makers.update((name, found[node.name]) for name in node.outputs if name)
    readers: dict[str, int] = {}
    for node in reversed(network.nodes):
        if node.name not in found:
            found[node.name] = min((readers[name] for name in node.outputs if name in readers), default=0)
        for name in node.inputs:
            readers[name] = min(found[node.name], readers.get(name, found[node.name]))
    return found


def groups(network: Network) -> tuple[tuple[Node, ...], ...]:
    """Every node that depends on an input, after those that depend on none and that it is the first to read.

    So a transposed weight, say, is made in the stage that multiplies by it, wherever the network has it. The
    groups are in the network's order.
    """
    nodes = network.nodes
    moving = depending(enumerate(nodes), network.inputs)
    first_readers: dict[str, int] = {}
    places: list[tuple[int, bool, int]] = []
    for index, node in reversed(list(enumerate(nodes))):
        fixed = not moving.isdisjoint(node.inputs)
        readers = [first_readers[name] for name in node.outputs if name in first_readers]
        place = index if fixed or not readers else min(readers)
        places.append((place, fixed, index))
        for name in filter(None, node.inputs):
            first_readers[name] = min(place, first_readers.get(name, place))
    return tuple(
        tuple(nodes[index] for _, _, index in group)
        for _, group in groupby(sorted(places), key=lambda each: each[0])
    )


def order(network: Network) -> Iterator[Node]:
    """The nodes of all groups."""
    for group in groups(network):
        yield from group
