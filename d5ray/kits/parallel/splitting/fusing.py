"""Exchanges that follow one another, as one: half of what travels is not needed in between"""

from collections.abc import Iterable, Sequence
from types import MappingProxyType

from d5ray.kits.parallel.collectives import nodes as types
from d5ray.operators.nodes.node import Node


def fused(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """The nodes, in which two pairs are one, where nothing else reads what stands between.

    AllGather, then AllReduceGradient: an AllGather whose gradients are summed, of which a part gets its own.
    AllReduce, then one Scatter: a ReduceScatter.
    """
    kept = set(outputs)
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    gone: set[str] = set()
    changed: dict[str, Node] = {}
    for node in nodes:
        behind = readers.get(node.outputs[0], [])
        if not _exchanges(node) or len(behind) != 1 or node.outputs[0] in kept or not _exchanges(behind[0]):
            continue
        (second,) = behind
        if (node.type, second.type) == (types.ALL_GATHER, types.ALL_REDUCE_GRADIENT):
            both = Node(
                types.ALL_GATHER,
                node.inputs,
                second.outputs,
                MappingProxyType({**node.attributes, "sums_gradients": 1}),
                node.name,
                types.DOMAIN,
            )
        elif (node.type, second.type) == (types.ALL_REDUCE, types.SCATTER):
            both = Node(
                types.REDUCE_SCATTER,
                node.inputs,
                second.outputs,
                second.attributes,
                node.name,
                types.DOMAIN,
            )
        else:
            continue
        gone.add(node.name)
        changed[second.name] = both
    return [changed.get(node.name, node) for node in nodes if node.name not in gone]


def _exchanges(node: Node) -> bool:
    return node.domain == types.DOMAIN and node.type in types.EXCHANGING
