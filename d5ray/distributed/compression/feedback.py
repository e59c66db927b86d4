"""Error feedback: what compression loses in one step is added in the next"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.compression.compressor import Array, Compressor
from d5ray.distributed.compression.reductions import (
    RandomSources,
    Reduced,
    Reduction,
    elements_of,
    reduction_of,
)
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.training.optimizers.optimizer import State

LARGE = 2**40  # entries; when the experiment is built the network's size is not known yet


@final
@dataclass(frozen=True)
class ErrorFeedback(Reduction):
    """p = v + e;  q = C(p);  e ← p − q;  the mean of all q   (Karimireddy et al., arXiv:1901.09847).

    Around a compressor, or a reduction with one, that is a contraction or has a bounded error. Nothing is
    lost: Σq + e = Σv at every agent. The residual e (n,) is this agent's, and begins as zero.
    """

    compression: Compressor | Reduction

    def __post_init__(self) -> None:
        if isinstance(self.compression, ErrorFeedback):
            raise ConfigurationError(
                f"ErrorFeedback is given {self.compression!r}: one is enough, leave the outer one out"
            )
        _check_bounded(self.compression, LARGE)

    @property
    def reduction(self) -> Reduction:
        """The reduction of the q."""
        return reduction_of(self.compression)

    @property
    def faithful(self) -> bool:
        return True

    def bounded_residual(self, n: int) -> bool:
        return False  # nothing is left to feed back

    def check(self, elements: int) -> None:
        self.reduction.check(elements)
        _check_bounded(self.compression, elements)

    def state(self, slots: Sequence[Slot], dtype: Any) -> State:
        inner = self.reduction.state(slots, dtype)
        return {"residual": np.zeros(elements_of(slots), dtype=dtype), "inner": inner}

    def mean(self, vector: Array, communication: Communicator, draws: RandomSources, state: State) -> Reduced:
        corrected = vector + state["residual"]
        reduced = self.reduction.mean(corrected, communication, draws, state["inner"])
        state["residual"] = np.subtract(corrected, reduced.sent, out=corrected)
        return reduced


def _check_bounded(compression: object, n: int) -> None:
    reduction = reduction_of(compression)
    if reduction.bounded_residual(n):
        return
    advice = (
        "it is unbiased, so use it without ErrorFeedback, or with more bits or a smaller bucket"
        if reduction.faithful
        else "the residual would grow without bound: take a compressor that is a contraction, such as TopK"
    )
    raise ConfigurationError(f"ErrorFeedback is given {compression!r}, which is no contraction: {advice}")
