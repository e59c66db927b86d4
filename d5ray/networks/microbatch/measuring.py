"""Measured costs of steps and layers for each size of micro-batches: seconds, and memory at its peak"""

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import final

import numpy as np

from d5ray.checks import check_count, check_items, check_kind, check_number, shown
from d5ray.errors import ConfigurationError
from d5ray.failures.program_state import as_before
from d5ray.networks.executors.graph_executor import Arrays, GraphExecutor
from d5ray.networks.microbatch.alone import alone, bytes_of_tensors
from d5ray.networks.microbatch.executor import MicroBatched
from d5ray.networks.microbatch.fresh_process import in_fresh_process
from d5ray.networks.microbatch.kernels import Kernel, LayerKernels
from d5ray.networks.microbatch.peak import HostPeak, PeakMemory
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

Factory = Callable[[Network], GraphExecutor]
FEWEST, MOST = 3, 50  # passes that are timed
PROCESS_SECONDS = 1800.0
MOST_THREADS = 4096


@final
@dataclass(frozen=True)
class StepCost:
    """A forward and backward pass: its median seconds, and the memory that it takes at its peak.

    peak_bytes: over what the process held when framework, network and inputs were loaded; the executor's own
    copy of the parameters counts.
    """

    seconds: float
    peak_bytes: int


@as_before()
def step_costs(
    factory: Factory,
    network: Network,
    inputs: Arrays,
    sizes: Iterable[int],
    loss: str = "loss",
    *,
    peak: Callable[[], PeakMemory] = HostPeak,
    seconds: float = 1.0,
    threads: int | None = None,
) -> dict[int, StepCost]:
    """The cost of a training pass over these inputs in micro-batches of each size, in fresh processes.

    A size of the whole batch or more is the plain executor. factory: makes it, such as
    `d5ray.frameworks.torch.from_onnx`. peak: of the memory that counts. seconds: about so long each is timed.
    """
    _check(factory, network, peak, seconds, threads)
    check_kind("inputs", inputs, Mapping, "a dictionary of arrays")
    for name, value in inputs.items():
        check_kind(f"inputs has {shown(name)}, which", value, np.ndarray, "an array")
    check_kind("loss", loss, str, "the name of an output")
    found = {}
    for size in _sizes(sizes):
        work = _Steps(factory, network, dict(inputs), size, loss, peak, seconds)
        found[size] = in_fresh_process(work, PROCESS_SECONDS, threads)
    return found


def fastest_within(costs: Mapping[int, StepCost], limit_bytes: int) -> int:
    """The size whose step takes the fewest seconds of those whose memory is within the limit.

    Raises `ConfigurationError`, with the least that there is, where none is.
    """
    check_kind("costs", costs, Mapping, "what step_costs gives, a StepCost by size")
    for size, cost in costs.items():
        check_kind(f"costs at {shown(size)}", cost, StepCost, "a StepCost")
    check_count("limit_bytes", limit_bytes, low=0)
    fitting = [size for size, cost in costs.items() if cost.peak_bytes <= limit_bytes]
    if not fitting:
        least = "none was measured"
        if costs:
            smallest = min(costs, key=lambda each: costs[each].peak_bytes)
            least = (
                f"the least is {costs[smallest].peak_bytes:,}, of micro-batches of {smallest}; raise the "
                "limit, or measure smaller ones"
            )
        raise ConfigurationError(f"no size of micro-batches stays within {limit_bytes:,} bytes: {least}")
    return min(fitting, key=lambda each: (costs[each].seconds, costs[each].peak_bytes))


@as_before()
def layer_kernels(
    factory: Factory,
    network: Network,
    node: Node | str,
    sizes: Iterable[int],
    *,
    peak: Callable[[], PeakMemory] = HostPeak,
    seconds: float = 0.2,
    threads: int | None = None,
) -> LayerKernels:
    """A layer's time forwards and backwards, and its workspace, on micro-batches of each size.

    One fresh process for the layer, from the smallest size on. The workspace is what a pass takes beside the
    layer's inputs, outputs, parameters and their gradients. Raises `ConfigurationError` for a layer that
    mixes samples.
    """
    _check(factory, network, peak, seconds, threads)
    check_kind("node", node, str | Node, "a node of the network, or its name")
    own = network.node(node if isinstance(node, str) else node.name)
    wanted = sorted(set(_sizes(sizes)))
    work = _Layer(factory, {size: alone(network, own, size) for size in wanted}, peak, seconds)
    found = in_fresh_process(work, PROCESS_SECONDS, threads)
    return LayerKernels(own.name, {size: (kernel,) for size, kernel in found.items()})


def _check(factory: object, network: object, peak: object, seconds: object, threads: object) -> None:
    """Raise `ConfigurationError` for what cannot be measured, before a process is started for it."""
    for name, function, example in (("factory", factory, "from_onnx"), ("peak", peak, "HostPeak")):
        if not callable(function):
            raise ConfigurationError(f"{name} is {shown(function)}: it must be a function such as {example}")
    check_kind("network", network, Network, "a Network, such as Network.from_onnx(path)")
    check_number("seconds", seconds, low=0.0, low_included=True, high=PROCESS_SECONDS)
    if threads is not None:
        check_count("threads", threads, high=MOST_THREADS, other="None")


def _sizes(sizes: object) -> list[int]:
    found = check_items("sizes", sizes, "sizes of micro-batches such as (8, 32)")
    for size in found:
        check_count("the size of a micro-batch", size, 1)
    if not found:
        raise ConfigurationError("sizes is empty: give sizes of micro-batches such as (8, 32)")
    return list(found)


@final
@dataclass(frozen=True)
class _Steps:
    """Steps as the fresh process measures them."""

    factory: Factory
    network: Network
    inputs: Arrays
    size: int
    loss: str
    peak: Callable[[], PeakMemory]
    seconds: float

    def __call__(self) -> StepCost:
        _load(self.factory)
        peak = self.peak()
        peak.begin()
        executor = self.factory(self.network)
        batch = max((len(value) for value in self.inputs.values() if value.ndim), default=1)
        if self.size < batch:
            executor = MicroBatched(executor, self.size)
        seconds = timed(lambda: executor.inference_and_backprop(self.inputs, self.loss), self.seconds)
        return StepCost(seconds, peak.bytes())


@final
@dataclass(frozen=True)
class _Layer:
    """A layer as the fresh process measures it: networks by size."""

    factory: Factory
    networks: Mapping[int, Network]
    peak: Callable[[], PeakMemory]
    seconds: float

    def __call__(self) -> dict[int, Kernel]:
        _load(self.factory)
        found = {}
        for size, network in self.networks.items():
            executor = self.factory(network)
            peak = self.peak()
            peak.begin()
            executor.inference_and_backprop({})
            workspace = max(0, peak.bytes() - bytes_of_tensors(network))
            seconds = timed(lambda run=executor: run.inference_and_backprop({}), self.seconds)  # type: ignore[misc]
            found[size] = Kernel(seconds, workspace, executor.framework)
            del executor
        return found


def timed(run: Callable[[], object], seconds: float) -> float:
    """The median time of a call, over about this many seconds, after a first one that does not count."""
    run()
    found: list[float] = []
    begin = perf_counter()
    while len(found) < FEWEST or (len(found) < MOST and perf_counter() - begin < seconds):
        before = perf_counter()
        run()
        found.append(perf_counter() - before)
    return statistics.median(found)


def _load(factory: Factory) -> None:
    """Let the framework be there, with what it allocates once."""
    network = Network("first")
    network.add_input("x", TensorDescriptor("float32", ("batch", 2)))
    network.add_parameter("w", np.ones((2, 1), np.float32))
    network.add_node(Node("MatMul", ("x", "w"), ("y",)))
    network.add_node(Node("ReduceMean", ("y",), ("loss",), {"keepdims": 0}))
    network.add_output("loss")
    factory(network).inference_and_backprop({"x": np.ones((2, 2), np.float32)})
