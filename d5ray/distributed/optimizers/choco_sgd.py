"""CHOCO-SGD: decentralized SGD that sends compressed differences to its neighbours"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import final

import numpy as np

from d5ray.checks import is_number, shown
from d5ray.distributed.compression.compressor import Array, Compressor, computed_in
from d5ray.distributed.optimizers.compressed_sgd import check_in_host_memory
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.requirements import Connected, DoublyStochastic, Static, Symmetric
from d5ray.errors import ConfigurationError
from d5ray.frameworks.host import host_view
from d5ray.training.batches.batch import Batch
from d5ray.training.optimizers.optimizer import part_of


@final
class ChocoSGD(DistributedOptimizer):
    """x_i ← x_i − η g_i;  q_i = C(x_i − x̂_i);  x̂_j ← x̂_j + q_j;  x_i ← x_i + γ Σ_j W_ij (x̂_j − x̂_i).

    C is the `compressor`, a contraction; x̂_j is what agent j made known of x_j so far, kept by j itself and,
    in equal replicas, by each of its neighbours, and 0 at first; γ is `gamma`, the smaller the coarser C; W
    are the topology's mixing weights, symmetric, doubly stochastic and always the same (Koloskova, Stich and
    Jaggi, arXiv:1902.00340). Mixing keeps the mean of x, whatever C drops. With C = I, γ = 1 it is
    `AdaptThenCombine`. Decentralized, inconsistent: the agents' models differ. The step by −η g is the base
    optimizer's own update, with local state. Every agent evaluates its own x_i, so buffers, which
    belong to that model, are local. x lies in host memory.

    A parameter that no pass uses is refused where compression moves it: the x̂ of it differ until C has sent
    it whole. After a death all x̂ begin again with 0, so that neighbours, some of them new, have equal
    replicas.
    """

    needs = (Connected(), Symmetric(), DoublyStochastic(), Static())
    invariant = "mean"

    def __init__(self, compressor: Compressor, gamma: float) -> None:
        if not isinstance(compressor, Compressor):
            raise ConfigurationError(
                f"compressor is {compressor!r}: it must be a Compressor such as TopK(0.01)"
            )
        if not (is_number(gamma) and 0.0 < gamma <= 1.0):
            raise ConfigurationError(
                f"gamma is {shown(gamma)}: it must be a number greater than 0, and 1 at most"
            )
        self.compressor = compressor
        self.gamma = gamma

    def check(self, elements: int) -> None:
        self.compressor.check(elements)
        if self.compressor.contraction(elements) is None:
            raise ConfigurationError(
                f"{self.compressor!r} is no contraction on {elements} parameters, ChocoSGD needs one: take "
                "another compressor, such as TopK(0.01)"
            )

    def start(self) -> None:
        check_in_host_memory(self)
        self._used = set[str]()  # names of the tensors that have had a gradient here
        topology, rank = self.communication.topology, self.communication.rank
        x = host_view(self.x)
        dtype = computed_in(x.dtype)
        self.replicas = {known: np.zeros(len(x), dtype) for known in (rank, *topology.in_neighbors(rank))}

    def step(self, batch: Batch) -> None:
        self.apply(self.gradient(batch))
        x, own = host_view(self.x), self.replicas[self.communication.rank]
        weights = self.communication.weights  # of this round
        message = self.compressor.compress(x - own, self.rng)
        length = self.compressor.message_bytes(len(x), own.dtype)
        messages = self.communication.neighbor_messages(message, length)
        messages[self.communication.rank] = message
        for rank, message in messages.items():
            self.replicas[rank] += self.compressor.decompress(message, len(x), own.dtype)
        with self._unused_stay(x):
            for rank, weight in weights.items():
                x += (self.gamma * weight * (self.replicas[rank] - own)).astype(x.dtype)

    @contextmanager
    def _unused_stay(self, x: Array) -> Iterator[None]:
        """Raise `ConfigurationError` where a tensor changes that has had no gradient here so far."""
        if len(self._used) < len(self.slots):
            self._used |= {slot.name for slot in self.slots}.difference(self._unused)
        views = {slot.name: part_of(x, slot) for slot in self.slots if slot.name not in self._used}
        before = {name: view.copy() for name, view in views.items()}
        yield
        if moved := next((name for name in views if not np.array_equal(views[name], before[name])), None):
            raise ConfigurationError(
                f"the model's parameter {moved!r} got no gradient in step {self._moment}, and would move all "
                f"the same, as {self.compressor!r} sends a part of it at a time: let it require no gradient, "
                "or choose a rule without compression, such as DPSGD"
            )
