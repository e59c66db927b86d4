"""Costs of every contiguous part of a network as a stage: seconds, parameters, bytes kept and moved"""

from collections.abc import Sequence
from typing import final

import numpy as np

from d5ray.kits.parallel.stages.partition import Table, parts_feeding, parts_reading, parts_sum
from d5ray.networks.executors.costs import NetworkCosts
from d5ray.networks.executors.plan import depending
from d5ray.networks.graph.tensors import is_floating
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node


@final
class StageTables:
    """Tables (n + 1, n + 1) over the parts [begin, end) of the n groups of nodes.

    compute         seconds of the operators, forwards and backwards
    parameters      bytes of the parameters that they read
    kept            bytes of activations that are kept for the backward pass
    received, sent  bytes that come from before and go behind, with those of the gradients that travel back.
                    What several parts read counts as sent once.
    may_be          which parts there are: none that begins or ends where it would divide the readers of a
                    state, or where a tensor of an unknown type stands
    """

    def __init__(self, network: Network, groups: Sequence[Sequence[Node]], costs: NetworkCosts) -> None:
        self._places: dict[str, int] = {}
        self._readers: dict[str, list[int]] = {}
        for place, group in enumerate(groups):
            self._places |= {name: place for node in group for name in node.outputs if name}
            for name in dict.fromkeys(name for node in group for name in node.inputs if name):
                self._readers.setdefault(name, []).append(place)
        count = len(groups)
        between = {name: self._readers[name] for name in self._places if name in self._readers}
        moved = self._moved(network, costs)
        self.compute = parts_sum([sum(costs.seconds[node.name] for node in group) for group in groups])
        self.kept = parts_sum([sum(costs.kept_bytes.get(node.name, 0) for node in group) for group in groups])
        self.parameters = parts_reading(
            count,
            ((-1, self._readers.get(name, []), each.nbytes) for name, each in network.parameters.items()),
        )
        self.received = parts_reading(
            count, ((self._places[name], read, moved.get(name, 0)) for name, read in between.items())
        )
        self.sent = parts_feeding(
            count, ((self._places[name], read[-1], moved.get(name, 0)) for name, read in between.items())
        )
        self.may_be = self._parts(network, count)

    def seconds(self, bytes_per_second: float) -> Table:
        """The seconds of every part, with what it receives and sends."""
        return self.compute + (self.received + self.sent) / bytes_per_second

    def _moved(self, network: Network, costs: NetworkCosts) -> dict[str, int]:
        """The bytes of every tensor, twice where its gradient travels back."""
        sloped = depending(enumerate(network.nodes), network.parameters)
        known = network.descriptors
        return {
            name: size * (1 + (name in sloped and name in known and is_floating(known[name].dtype)))
            for name, size in costs.tensor_bytes.items()
        }

    def _parts(self, network: Network, count: int) -> "np.ndarray[tuple[int, int], np.dtype[np.bool_]]":
        places = np.ones(count + 1, bool)  # where a part may begin and another one end
        for name, place in self._places.items():
            if name not in network.descriptors and name in self._readers:
                places[place + 1 : self._readers[name][-1] + 1] = False
        for name in network.state_values:
            readers = self._readers.get(name, [0])
            places[readers[0] + 1 : readers[-1] + 1] = False
        begins, ends = np.indices((count + 1, count + 1))
        return np.asarray((begins < ends) & places[:, None] & places[None, :])
