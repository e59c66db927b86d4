"""What a process does that measures steps in micro-batches: the network, its batch, and the check before"""

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from d5ray.errors import AgentError
from d5ray.frameworks import torch as d5fw
from d5ray.frameworks.initial_values import labelled_network
from d5ray.networks.microbatch.executor import MicroBatched
from d5ray.networks.microbatch.freezing import frozen_statistics
from d5ray.networks.microbatch.measuring import StepCost, step_costs
from d5ray.networks.microbatch.peak import HostPeak
from d5ray.networks.network import Network
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

if TYPE_CHECKING:
    from d5ray.networks.executors.graph_executor import GraphExecutor

CLASSES = 10
CHECKED = 3  # samples, in micro-batches of 2 and 1
TOLERANCE = 1e-3  # of their gradients, relative to the largest
Batch = dict[str, np.ndarray[Any, Any]]


def network_of(name: str, sample_shape: tuple[int, ...], seed: int) -> Network:
    """One of the catalogue's with its loss, which mixes no samples."""
    made = labelled_network(name, {}, sample_shape, CLASSES, SoftmaxCrossEntropyLoss(), seed=seed)
    return frozen_statistics(made.network)


def batch_of(network: Network, samples: int, seed: int) -> Batch:
    """Random samples and labels."""
    generator = np.random.default_rng(seed)
    shape = network.inputs["input"].shape or ()
    sizes = [size for size in shape[1:] if isinstance(size, int)]  # all but the batch's are known
    inputs = generator.standard_normal((samples, *sizes), dtype=np.float32)
    return {"input": inputs, "labels": generator.integers(0, CLASSES, samples)}


@final
@dataclass(frozen=True)
class MicrobatchWork:
    """The work of one process: `steps` steps after one, in micro-batches of `size`, or as a whole.

    Gives the seconds of each and the bytes at the peak.
    """

    network: str
    sample_shape: tuple[int, ...]
    batch_size: int
    size: int
    steps: int
    threads: int
    seed: int

    def costs(self, sizes: tuple[int, ...]) -> dict[int, StepCost]:
        """What a step takes as a whole, and in micro-batches of each size."""
        network = network_of(self.network, self.sample_shape, self.seed)
        batch = batch_of(network, self.batch_size, self.seed)
        sizes = (self.batch_size, *sizes)
        return step_costs(d5fw.from_onnx, network, batch, sizes, seconds=0.0, threads=self.threads)

    def __call__(self, rank: int) -> tuple[list[float], float]:
        torch.set_num_threads(self.threads)
        network = network_of(self.network, self.sample_shape, self.seed)
        check(network, self.seed)
        batch = batch_of(network, self.batch_size, self.seed)
        peak = HostPeak()
        peak.begin()
        executor: GraphExecutor = d5fw.from_onnx(network)
        if self.size < self.batch_size:
            executor = MicroBatched(executor, self.size)
        seconds = []
        for _ in range(1 + self.steps):
            begin = perf_counter()
            executor.inference_and_backprop(batch)
            seconds.append(perf_counter() - begin)
        return seconds, float(peak.bytes())


def check(network: Network, seed: int) -> None:
    """Raise `AgentError` unless micro-batches have the gradients of the whole batch."""
    batch = batch_of(network, CHECKED, seed)
    found = []
    for sizes in ((CHECKED,), (CHECKED - 1, 1)):
        executor: GraphExecutor = d5fw.from_onnx(network)
        if len(sizes) > 1:
            executor = MicroBatched(executor, sizes)
        executor.inference_and_backprop(batch)
        found.append(network.fetch_tensors([gradient for _, gradient in network.gradient()]))
    whole, parts = found
    largest = max(float(np.abs(each).max()) for each in whole)
    apart = max(float(np.abs(one - other).max()) for one, other in zip(whole, parts, strict=True))
    if not apart <= TOLERANCE * largest:
        raise AgentError(
            f"the gradients of micro-batches differ from those of the batch by {apart:g}, of at most "
            f"{largest:g}: nothing is measured"
        )
