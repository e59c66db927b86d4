"""The order in which a network's nodes are cut into stages"""

from d5ray.networks.execution.plan import depending
from d5ray.networks.network import Network
from d5ray.operators.node import Node


def order(network: Network) -> tuple[Node, ...]:
    """The network's own, but that what depends on no input stands right before the first node that reads it.

    So a transposed weight, say, is made in the stage that multiplies by it, wherever the network has it.
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
        for name in node.inputs:
            if name:
                first_readers[name] = min(place, first_readers.get(name, place))
    return tuple(nodes[index] for _, _, index in sorted(places))
