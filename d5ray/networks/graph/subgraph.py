"""A part of a graph: some of its nodes, with what they read from outside of themselves"""

from collections.abc import Mapping, Sequence
from typing import Any

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.graph import Graph
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor


def part(
    graph: Graph,
    known: Mapping[str, TensorDescriptor],
    nodes: Sequence[Node],
    outputs: Sequence[str],
    name: str,
) -> Graph:
    """The graph of these nodes of another one, which makes these outputs.

    Its inputs are those of the graph that it reads, and what nodes make that are none of its own. Raises
    `ConfigurationError` for such a tensor of an unknown type.
    """
    made = {each for node in nodes for each in node.outputs if each}
    read = dict.fromkeys(each for node in nodes for each in node.inputs if each and each not in made)
    read |= dict.fromkeys(each for each in outputs if each not in made)
    held = graph.values()
    inputs = {each: kind for each, kind in graph.inputs.items() if each in read}
    for each in read:
        if each in held or each in inputs:
            continue
        if each not in known:
            readers = next((node for node in nodes if each in node.inputs), None)
            raise ConfigurationError(
                f"{readers or 'an output'} reads {each!r} from another part of the network, and its type is "
                "not known: let both nodes be in one part"
            )
        inputs[each] = known[each]

    def kept(values: Mapping[str, Any]) -> dict[str, Any]:
        return {each: value for each, value in values.items() if each in read}

    return Graph(
        name,
        tuple(nodes),
        inputs,
        tuple(outputs),
        kept(graph.parameters),
        kept(graph.constants),
        kept(graph.state_values),
    )
