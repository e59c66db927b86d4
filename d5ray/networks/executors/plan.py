"""Plan: which nodes some tensors of a network need, and after which of them a tensor is read no more"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from d5ray.operators.nodes.node import Node

if TYPE_CHECKING:
    from d5ray.networks.network import Network


@final
@dataclass(frozen=True)
class Plan:
    """The nodes and tensors of one kind of pass.

    wanted          the tensors that the pass is for
    nodes           with their places in the network, in its order, without those that nothing wanted needs
    inputs          of the network that are needed
    state           what is read -> what replaces it after the pass, for those that are made
    last_uses       for every node the tensors that nothing reads after it, and that are not wanted
    """

    wanted: tuple[str, ...]
    nodes: tuple[tuple[int, Node], ...]
    inputs: tuple[str, ...]
    state: Mapping[str, str]
    last_uses: tuple[tuple[str, ...], ...]

    @property
    def read(self) -> frozenset[str]:
        """All tensors that some node reads, or that are wanted."""
        return frozenset(self.wanted) | {name for _, node in self.nodes for name in node.inputs if name}


def plan(network: "Network", wanted: Iterable[str], *, training: bool = False) -> Plan:
    """The plan for these tensors. In training the nodes that are needed also replace their state."""
    wanted = tuple(dict.fromkeys(wanted))
    nodes = needed(network.nodes, wanted)
    made = {name for _, node in nodes for name in node.outputs if name}
    state = {old: new for old, new in network.state.items() if new in made} if training else {}
    kept = {*wanted, *state.values()}
    read = {name for _, node in nodes for name in node.inputs if name} | set(wanted)
    return Plan(
        wanted,
        nodes,
        tuple(name for name in network.inputs if name in read),
        state,
        last_uses(nodes, kept),
    )


def needed(nodes: Iterable[Node], wanted: Iterable[str]) -> tuple[tuple[int, Node], ...]:
    """The nodes with their places, without those of which nothing wanted is made."""
    missing = set(wanted)
    found = []
    for place, node in reversed(list(enumerate(nodes))):
        if not missing.isdisjoint(node.outputs):
            found.append((place, node))
            missing.update(name for name in node.inputs if name)
    return tuple(reversed(found))


def computable(network: "Network", given: Iterable[str]) -> tuple[str, ...]:
    """The outputs of the network that can be computed from these inputs and what the network holds."""
    known = {*given, *network.parameters, *network.constants, *network.state_values}
    for node in network.nodes:
        if all(name in known for name in node.inputs if name):
            known.update(node.outputs)
    return tuple(name for name in network.outputs if name in known)


def needs_of(network: "Network", wanted: Iterable[str]) -> tuple[str, ...]:
    """The inputs of the network that these tensors depend on."""
    wanted = tuple(wanted)
    read = {name for _, node in needed(network.nodes, wanted) for name in node.inputs} | set(wanted)
    return tuple(name for name in network.inputs if name in read)


def depending(nodes: Iterable[tuple[int, Node]], sources: Iterable[str]) -> frozenset[str]:
    """The sources, and all tensors that are computed from them."""
    found = set(sources)
    for _, node in nodes:
        if not found.isdisjoint(node.inputs):
            found.update(name for name in node.outputs if name)
    return frozenset(found)


def last_uses(nodes: tuple[tuple[int, Node], ...], kept: set[str]) -> tuple[tuple[str, ...], ...]:
    """The tensors of every node that nothing reads after it, but for those that are kept."""
    seen = set(kept)
    found: list[tuple[str, ...]] = []
    for _, node in reversed(nodes):
        names = dict.fromkeys(name for name in (*node.inputs, *node.outputs) if name and name not in seen)
        seen.update(names)
        found.append(tuple(names))
    return tuple(reversed(found))
