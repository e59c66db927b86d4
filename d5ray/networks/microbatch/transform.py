"""microbatched: a network in which layers compute their mini-batch in parts, one after the other"""

from collections.abc import Mapping, Sequence

import numpy as np

from d5ray.checks import check_count, check_kind
from d5ray.errors import ConfigurationError
from d5ray.networks.graph.edits import free
from d5ray.networks.microbatch.sample_axes import sample_inputs, whereabouts
from d5ray.networks.microbatch.samples import SHARED, Kind, SampleAxis
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

DRAWING = frozenset({"Dropout", "RandomNormalLike", "RandomUniformLike"})


def microbatched(network: Network, sizes: Mapping[str, Sequence[int]]) -> Network:
    """A copy in which each of these nodes computes micro-batches of these sizes; see arXiv:1804.04806.

    What the node reads of the samples is taken apart by a Split, the operator is applied to each part with
    the same parameters, and a Concat puts together what it makes: outputs and gradients are those of the
    network as it was, and a kernel's workspace is that of the largest part. The copy takes batches of as
    many samples as the sizes add up to, and no others.

    sizes: by node's name, such as `WorkspaceDivision` chooses. Raises `ConfigurationError` for an operator
    that mixes samples or draws at random, with the reason, and for sizes that do not add up to one batch.
    """
    check_kind("network", network, Network, "a Network, such as Network.from_onnx(path)")
    check_kind("sizes", sizes, Mapping, "a dictionary of sizes by nodes' names, such as {'conv1': (16, 16)}")
    batch = _batch(network, sizes)
    found = whereabouts(network, network.nodes, training=True)
    copy = network.copy()
    with copy.changes():
        _fix_batch(copy, batch)
        for name, parts in sizes.items():
            node = network.node(name)
            if name in found.mixing:
                raise _refused(node, found.mixing[name])
            if node.type in DRAWING:
                raise _refused(node, "it draws at random, and would draw other numbers for the parts")
            if len(parts) > 1:
                _take_apart(copy, node, tuple(parts), found.kinds)
    return copy


def _batch(network: Network, sizes: Mapping[str, Sequence[int]]) -> int:
    """The number of samples that all sizes add up to. Raises `ConfigurationError` where it is not one."""
    if not sizes:
        raise ConfigurationError("no node is named: give the sizes of its micro-batches by a node's name")
    totals: dict[int, str] = {}
    for name, parts in sizes.items():
        network.node(name)
        if not isinstance(parts, (tuple, list)) or not parts:
            raise ConfigurationError(
                f"the sizes of the node {name!r} are {parts!r}: give integers such as (64, 64, 32)"
            )
        for size in parts:
            check_count(f"the size of a micro-batch of the node {name!r}", size, 1)
        totals.setdefault(sum(parts), name)
    (batch, first), *others = totals.items()
    if others:
        raise ConfigurationError(
            f"the micro-batches of the node {others[0][1]!r} add up to {others[0][0]} samples, and those of "
            f"{first!r} to {batch}: divide one batch"
        )
    return batch


def _fix_batch(network: Network, batch: int) -> None:
    """Let the network take batches of that many samples alone."""
    own = sample_inputs(network)
    for name, known in network.inputs.items():
        if name in own and known.shape is not None:
            if isinstance(known.shape[0], int) and known.shape[0] != batch:
                raise ConfigurationError(
                    f"the micro-batches add up to {batch} samples, and the network's input {name!r} is "
                    f"{known}"
                )
            known = TensorDescriptor(known.dtype, (batch, *known.shape[1:]))
        network.remove_input(name)  # and in again, so that their order stays
        network.add_input(name, known)


def _take_apart(network: Network, node: Node, parts: tuple[int, ...], kinds: Mapping[str, Kind]) -> None:
    """Put the parts in the node's place."""
    taken = {*network.inputs, *network.parameters, *network.constants, *network.state_values}
    taken.update(name for each in network.nodes for name in each.outputs)
    new: list[Node] = []

    def named(name: str) -> str:
        found = free(name, taken)
        taken.add(found)
        return found

    lengths = network.add_constant(named(f"{node.name}.sizes"), np.asarray(parts, np.int64))
    pieces: dict[str, list[str]] = {}
    for name in dict.fromkeys(node.inputs):
        held = kinds.get(name, SHARED)
        if isinstance(held, SampleAxis):
            pieces[name] = [named(f"{node.name}.{name}.{place}") for place in range(len(parts))]
            split = Node("Split", (name, lengths), tuple(pieces[name]), {"axis": held.axis})
            new.append(split)
        elif name and held is not SHARED:
            raise _refused(node, f"its input {name!r} is {held.value}")
    made: dict[str, list[str]] = {}
    for place in range(len(parts)):
        outputs = tuple(name and named(f"{name}.{place}") for name in node.outputs)
        inputs = tuple(pieces[name][place] if name in pieces else name for name in node.inputs)
        new.append(Node(node.type, inputs, outputs, node.attributes, domain=node.domain))
        for whole, part in zip(node.outputs, outputs, strict=True):
            made.setdefault(whole, []).append(part)
    for name in filter(None, node.outputs):
        held = kinds[name]
        if not isinstance(held, SampleAxis):
            raise _refused(node, f"its output {name!r} is {held.value}")
        new.append(Node("Concat", tuple(made[name]), (name,), {"axis": held.axis}))
    network.replace(node.name, *new)


def _refused(node: Node, why: str) -> ConfigurationError:
    return ConfigurationError(f"the node {node} cannot compute micro-batches: {why}")
