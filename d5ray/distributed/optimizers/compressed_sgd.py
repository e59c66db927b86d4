"""Compressed SGD: agents exchange compressed gradients, with error feedback where the compressor needs it"""

from typing import final

import numpy as np

from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.compression.compressor import Compressor, computed_in
from d5ray.distributed.compression.feedback import LARGE
from d5ray.distributed.compression.reductions import RandomSources, Reduction, reduction_of
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import ConfigurationError
from d5ray.frameworks.host import device_name, host_view
from d5ray.training.batches.batch import Batch


@final
class CompressedSGD(DistributedOptimizer):
    """x ← U( mean_j q_j / η, x )  with  p_j = η g_j + e_j;  q_j = C(p_j);  e_j ← p_j − q_j.

    Error-feedback SGD (Karimireddy et al., arXiv:1901.09847), over agents. U is the base
    optimizer's update, η its learning rate; with SGD it is the paper's x ← x − mean q. η stands within C, as
    in the paper, so that what a step left over enters later with the learning rate of that step. Without
    `ErrorFeedback` e is 0. Consistent, decentralized: the mean, and so x and the base optimizer's state, are
    equal on all agents to the last bit; e is each agent's own. Buffers are averaged.
    x lies in host memory.

    compression: a reduction, which forms the mean, or a compressor: then its messages are all-gathered, or
    reduced by parts (`ScatterReduce`) where it merely rounds.
      CompressedSGD(ErrorFeedback(TopK(16, bucket=512)))
      CompressedSGD(ErrorFeedback(SparseAllreduce(TopK(0.01))))
      CompressedSGD(ErrorFeedback(PowerSGD(rank=2)))
      CompressedSGD(QSGD(bits=4))
      CompressedSGD(ScatterReduce(QSGD(bits=8)))
      CompressedSGD(Allreduce(UnbiasedRandomK(0.1)))
    """

    buffer_policy = SynchronizedBuffers()
    invariant = "one model"
    shared_state = ("memory.inner",)
    own_state = ("memory.residual",)

    def __init__(self, compression: Compressor | Reduction) -> None:
        _check_faithful(compression, reduction_of(compression))
        self.compression = compression

    def check(self, elements: int) -> None:
        reduction_of(self.compression).check(elements)

    def start(self) -> None:
        check_in_host_memory(self)
        self.reduction = reduction_of(self.compression)
        self.dtype = computed_in(host_view(self.x).dtype)
        self.memory = self.reduction.state(self.slots, self.dtype)
        self.shared_seed = int(self.shared_rng.integers(2**63))

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        flat = host_view(gradient)  # the same memory
        draws = RandomSources(self.rng, np.random.default_rng([self.shared_seed, batch.step]))
        scaled = self.learning_rate * flat.astype(self.dtype)
        mean = self.reduction.mean(scaled, self.communication, draws, self.memory).mean
        flat[...] = mean / self.learning_rate
        self.mark_unused(gradient)
        self.apply(gradient)


def _check_faithful(compression: object, reduction: Reduction) -> None:
    if reduction.faithful:
        return
    advice = (
        f"Write CompressedSGD(ErrorFeedback({compression!r}))"
        if reduction.bounded_residual(LARGE)
        else "It is no contraction either, so that error feedback is no help: take another compressor"
    )
    raise ConfigurationError(
        f"CompressedSGD is given {compression!r}, which is biased: what it drops would be lost for good. "
        + advice
    )


def check_in_host_memory(rule: DistributedOptimizer) -> None:
    """Raise `ConfigurationError` where the parameters lie on a device: compressors compute on the host."""
    if (device := device_name(rule.x)) != "cpu":
        raise ConfigurationError(
            f"{type(rule).__name__} compresses in host memory, the parameters are on {device}: train on "
            "CPUDevice(), or with a distributed optimizer that exchanges arrays as they are"
        )
