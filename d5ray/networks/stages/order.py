"""The order in which a network's nodes are cut into stages, and what is not cut apart"""

from collections.abc import Iterator
from itertools import groupby

from d5ray.networks.executors.plan import depending
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node


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
