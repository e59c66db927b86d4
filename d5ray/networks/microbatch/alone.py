"""A layer as a network of its own, for micro-batches of one size: what is measured of it"""

import dataclasses

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.edits import free
from d5ray.networks.graph.tensors import is_floating
from d5ray.networks.microbatch.sample_axes import whereabouts
from d5ray.networks.microbatch.samples import SHARED, SampleAxis
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import Dimension, TensorDescriptor


def alone(network: Network, node: Node, size: int) -> Network:
    """A network of this node, with values for all that it reads, and the sum of its outputs as "loss".

    What it reads of samples becomes a parameter of as many random samples, so that a backward pass has the
    gradients that it has in the network. Raises `ConfigurationError` for a node that mixes samples, and for
    one of which the shape of a sample is not known.
    """
    found = whereabouts(network, network.nodes, training=True)
    if node.name in found.mixing:
        raise ConfigurationError(f"the node {node} cannot compute micro-batches: {found.mixing[node.name]}")
    held = {**network.parameters, **network.constants, **network.state_values}
    generator = np.random.default_rng(0)
    own = Network(node.name)
    with own.changes():
        for name in dict.fromkeys(filter(None, node.inputs)):
            known, kind = network.descriptors.get(name), found.kinds.get(name, SHARED)
            if name in held:
                value = held[name]
            else:
                sizes = _sizes(node, name, known, kind.axis if isinstance(kind, SampleAxis) else None, size)
                assert known is not None  # its sizes are
                value = generator.standard_normal(sizes).astype(known.dtype)
            add = own.add_constant if not is_floating(value.dtype) else own.add_parameter
            if name in network.state_values or name in network.constants:
                add = own.add_constant
            add(name, value)
        own.add_node(dataclasses.replace(node))
        _add_sum(own, network, node)
    return own


def bytes_of_tensors(network: Network) -> int:
    """The bytes of a layer's outputs, and of the gradients of all that is trained and made, alone."""
    node = network.nodes[0]
    made = sum(network.descriptors[name].bytes for name in node.outputs if name)
    return 2 * made + sum(value.nbytes for value in network.parameters.values())


def _add_sum(own: Network, network: Network, node: Node) -> None:
    """The loss: all elements of what the node makes, added up."""
    taken = {*node.inputs, *node.outputs}
    sums = []
    for name in filter(None, node.outputs):
        known = network.descriptors.get(name)
        if known is not None and is_floating(known.dtype):
            sums.append(free(f"{name}.sum", taken))
            own.add_node(Node("ReduceSum", (name,), (sums[-1],), {"keepdims": 0}))
    if not sums:
        raise ConfigurationError(f"the node {node} makes no floating-point numbers: it has no backward pass")
    own.add_node(Node("Sum", tuple(sums), ("loss",)))
    own.add_output("loss")


def _sizes(
    node: Node, name: str, known: TensorDescriptor | None, axis: int | None, size: int
) -> tuple[int, ...]:
    """The shape of a tensor for that many samples."""
    shape: list[Dimension] = [] if known is None or known.shape is None else list(known.shape)
    if axis is not None and axis < len(shape):
        shape[axis] = size
    if known is None or known.shape is None or not all(isinstance(each, int) for each in shape):
        raise ConfigurationError(
            f"the node {node} reads {name!r}, {known or 'of which nothing is known'}: the size of a sample "
            "must be known to measure it"
        )
    return tuple(each for each in shape if isinstance(each, int))
