"""Costs of a network's operators: seconds and bytes, measured here, or counted"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import final

from d5ray.checks import check_count, check_kind, check_number, shown
from d5ray.errors import ConfigurationError
from d5ray.networks.events.event import FORWARD, GraphEvent, OperatorMoment
from d5ray.networks.events.operator_memory import OperatorMemory
from d5ray.networks.events.operator_times import OperatorTimes
from d5ray.networks.executors.graph_executor import Arrays, GraphExecutor
from d5ray.networks.graph.tensors import is_floating
from d5ray.networks.network import Network
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.counting.node_costs import NodeCost, backward_cost, forward_cost

FEWEST, MOST = 5, 200  # passes that are timed
FLOPS, BANDWIDTH = 2e10, 1e10  # of the processor core that counted costs suppose, in one second


@final
@dataclass(frozen=True)
class NetworkCosts:
    """The costs of one training pass over one micro-batch.

    seconds         by the names of nodes: forwards and backwards together
    flops           by the names of nodes: counted operations, forwards and backwards
    kept_bytes      by the names of nodes: what more is kept for the backward pass after the node has run;
                    negative where more was let go
    tensor_bytes    by the names of tensors that nodes make
    measured        whether seconds were measured; otherwise they are what the counted operations and bytes
                    would take on a core of 20 GFLOP/s and 10 GB/s
    """

    seconds: Mapping[str, float]
    flops: Mapping[str, int]
    kept_bytes: Mapping[str, int]
    tensor_bytes: Mapping[str, int]
    measured: bool


def operator_costs(
    factory: Callable[..., GraphExecutor],
    network: Network,
    inputs: Arrays,
    loss: str = "loss",
    *,
    seconds: float = 1.0,
) -> NetworkCosts:
    """The costs of a network's operators here, in training passes over these inputs: medians.

    factory: such as `d5ray.frameworks.torch.from_onnx`. inputs: one micro-batch with its labels, by name.
    seconds: about so long passes are timed. What differs from process to process, as times do, is measured
    once, and goes to all who are to cut alike.
    """
    if not callable(factory):
        raise ConfigurationError(f"factory is {shown(factory)}: it must be a function such as from_onnx")
    check_kind("network", network, Network, "a Network, such as Network.from_onnx(path)")
    check_kind("inputs", inputs, Mapping, "a dictionary of arrays")
    check_kind("loss", loss, str, "the name of an output")
    check_number("seconds", seconds, low=0.0, low_included=True)
    memory, sizes = OperatorMemory(), _Sizes()
    executor = factory(network.copy(), events=(memory, sizes))
    for _ in range(2):
        executor.inference_and_backprop(inputs, loss)
    kept = {row.node: row.kept_bytes for row in memory.rows if row.direction == FORWARD}
    del executor
    times = OperatorTimes()
    executor = factory(network.copy(), events=times)
    begin, passes = perf_counter(), 0
    while passes < FEWEST or (passes < MOST and perf_counter() - begin < seconds):
        executor.inference_and_backprop(inputs, loss)
        passes += 1
    taken: dict[str, float] = {}
    for row in times.table().to_pylist():
        taken[row["node"]] = taken.get(row["node"], 0.0) + row["median_seconds"]
    batch = max((len(value) for value in inputs.values() if value.ndim), default=1)
    flops = counted_costs(network, max(1, batch)).flops
    return NetworkCosts(taken, flops, kept, sizes.found, measured=True)


def counted_costs(network: Network, batch: int = 1) -> NetworkCosts:
    """The costs from counted operations and bytes; equal on every machine.

    batch: stands for every open size. A tensor of unknown shape counts nothing, an operator of one's own its
    bytes alone.
    """
    check_kind("network", network, Network, "a Network, such as Network.from_onnx(path)")
    check_count("batch", batch, 1)
    seconds, kept, flops = {}, {}, {}
    for at in _sites(network, batch):
        cost, name = _counted(at), at.node.name
        seconds[name] = max(cost.flops / FLOPS, cost.bytes / BANDWIDTH)
        flops[name] = cost.flops
        kept[name] = sum(each.bytes for each in at.outputs if each is not None and is_floating(each.dtype))
    return NetworkCosts(seconds, flops, kept, tensor_bytes(network, batch), measured=False)


def pass_flops(network: Network, batch: int, *, training: bool) -> int:
    """The operations of a pass over a batch, in training backwards too; 0 where those of a node are unknown.

    batch: stands for every open size.
    """
    counts = (forward_cost, backward_cost) if training else (forward_cost,)
    try:
        costs = [count(at) for at in _sites(network, batch) for count in counts]
    except ConfigurationError:  # an unknown shape, or an operator of one's own
        return 0
    return sum(cost.flops for cost in costs if cost is not None)


def tensor_bytes(network: Network, batch: int) -> dict[str, int]:
    """The bytes of every tensor that a node makes for a batch, by its name, where they are known."""
    outputs = [name for node in network.nodes for name in node.outputs]
    known = {
        name: _closed(network.descriptors[name], batch) for name in outputs if name in network.descriptors
    }
    return {name: each.bytes for name, each in known.items() if each is not None}


def _sites(network: Network, batch: int) -> Iterator[NodeContext]:
    """The contexts of the nodes, with the batch for open sizes."""
    known = {name: _closed(each, batch) for name, each in network.descriptors.items()}
    for node in network.nodes:
        given, made = (tuple(known.get(name) for name in names) for names in (node.inputs, node.outputs))
        yield replace(network.site(node), inputs=given, outputs=made)


def _counted(context: NodeContext) -> NodeCost:
    """Forwards and backwards together, as far as that is known."""
    flops = 0
    for counted in (forward_cost, backward_cost):
        try:
            found = counted(context)
        except ConfigurationError:  # an unknown shape, or an operator of one's own
            continue
        flops += 0 if found is None else found.flops
    moved = sum(each.bytes for each in (*context.inputs, *context.outputs) if each is not None)
    return NodeCost(flops, 3 * moved)  # forwards once, backwards with the gradients


def _closed(descriptor: TensorDescriptor, batch: int) -> TensorDescriptor | None:
    if descriptor.shape is None or None in descriptor.shape:
        return None
    return TensorDescriptor(
        descriptor.dtype, [batch if isinstance(size, str) else size for size in descriptor.shape]
    )


class _Sizes(GraphEvent):
    """The bytes of every tensor that nodes make, in the first pass."""

    def __init__(self) -> None:
        self.found: dict[str, int] = {}

    def after_operator(self, moment: OperatorMoment) -> None:
        if moment.direction == FORWARD and not self.found.keys() >= set(filter(None, moment.node.outputs)):
            self.found |= {name: each.nbytes for name, each in moment.named_outputs().items()}
