"""PowerSGD: the mean of matrices of low rank, by two allreduces of their factors"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.checks import check_count
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.compression.compressor import Array
from d5ray.distributed.compression.reductions import RandomSources, Reduced, Reduction, elements_of
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.training.optimizers.optimizer import State


@final
@dataclass(frozen=True)
class _Matrix:
    """A parameter tensor M (rows, columns), and where it and its factors of rank r lie in flat arrays."""

    rows: int
    columns: int
    rank: int
    begin: int  # of M in the gradient
    left: int  # of P in the first allreduce
    right: int  # of Q in the second

    def whole(self, flat: Array) -> Array:
        """M (rows, columns)."""
        return flat[self.begin : self.begin + self.rows * self.columns].reshape(self.rows, self.columns)

    def p(self, flat: Array) -> Array:
        """P (rows, r)."""
        return flat[self.left : self.left + self.rows * self.rank].reshape(self.rows, self.rank)

    def q(self, flat: Array) -> Array:
        """Q (columns, r)."""
        return flat[self.right : self.right + self.columns * self.rank].reshape(self.columns, self.rank)


@final
@dataclass(frozen=True)
class PowerSGD(Reduction):
    """P = mean M_i Q;  P̂ = orth(P);  Q ← mean M_iᵀ P̂;  the mean is P̂ Qᵀ   (Vogels et al., arXiv:1905.13727).

    One step of the power iteration a call, from the Q of the call before. M_i is agent i's gradient of one
    tensor, a matrix (first axis, all others). Tensors of one axis, and those that rank r would not make
    smaller, go as they are, with the P in the first allreduce. Biased: give it to `ErrorFeedback`, which then
    keeps M_i − P̂ Qᵀ. Exact where the rank of the mean is at most r; n agents act as one on the mean would.
    """

    rank: int

    def __post_init__(self) -> None:
        check_count("PowerSGD's rank", self.rank)

    @property
    def faithful(self) -> bool:
        return False

    def contraction(self, n: int) -> float:
        """E‖M − P̂ Qᵀ‖² ≤ (1 − r/min(rows, columns))‖M‖², with one agent and a fresh normal Q.

        The weights σ² of a random direction favour large σ, so each of the r directions of P̂ holds at least
        its share of what is left. A matrix of n entries has min(rows, columns) ≤ √n. For the warm Q there is
        no proof; the paper measures it to be better.
        """
        return min(1.0, self.rank / math.sqrt(n))

    def bounded_residual(self, n: int) -> bool:
        return True

    def check(self, elements: int) -> None:
        """Accept any number of elements: what must fit are the tensors' shapes, which `state` checks."""

    def state(self, slots: Sequence[Slot], dtype: Any) -> State:
        matrices = self._matrices(slots)
        if not matrices:
            shapes = sorted({slot.shape for slot in slots}, key=math.prod)[-3:]
            raise ConfigurationError(
                f"PowerSGD(rank={self.rank}) makes no tensor of this model smaller, the largest are "
                f"{', '.join(map(str, shapes))}: take a smaller rank, or another compression"
            )
        dense = np.ones(elements_of(slots), dtype=bool)
        for m in matrices:
            m.whole(dense)[...] = False
        q = np.zeros(sum(m.columns for m in matrices) * self.rank, dtype=dtype)
        return {"matrices": matrices, "dense": np.flatnonzero(dense), "q": q}

    def mean(self, vector: Array, communication: Communicator, draws: RandomSources, state: State) -> Reduced:
        matrices, dense = state["matrices"], state["dense"]
        p = self._lefts(vector, state, draws.shared)
        communication.allreduce(p, "mean")
        bases = [_orthonormal(m.p(p)) for m in matrices]
        q = np.empty_like(state["q"])
        for m, basis in zip(matrices, bases, strict=True):
            _multiply(m.whole(vector).T, basis, out=m.q(q))
        communication.allreduce(q, "mean")
        mean = np.empty_like(vector)
        for m, basis in zip(matrices, bases, strict=True):
            _multiply(basis, m.q(q).T, out=m.whole(mean))
        sent = mean.copy()
        mean[dense], sent[dense] = p[len(p) - len(dense) :], vector[dense]
        state["q"] = q
        return Reduced(mean, sent)

    def _lefts(self, vector: Array, state: State, shared: np.random.Generator) -> Array:
        """Every P = M Q, then what is not compressed. Columns of Q that are 0, as all at first, are drawn."""
        matrices, dense, q = state["matrices"], state["dense"], state["q"]
        lefts = sum(m.rows for m in matrices) * self.rank
        p = np.empty(lefts + len(dense), dtype=vector.dtype)
        for m in matrices:
            right = m.q(q)
            for column in np.flatnonzero(~right.any(axis=0)):
                right[:, column] = shared.standard_normal(m.columns, dtype=vector.dtype)
            _multiply(m.whole(vector), right, out=m.p(p))
        p[lefts:] = vector[dense]
        return p

    def _matrices(self, slots: Sequence[Slot]) -> list[_Matrix]:
        """The tensors that rank r makes smaller."""
        found: list[_Matrix] = []
        left = right = 0
        for slot in slots:
            rows = slot.shape[0] if len(slot.shape) > 1 else 0
            columns = slot.size // rows if rows else 0
            if (rows + columns) * self.rank < rows * columns:
                found.append(_Matrix(rows, columns, self.rank, slot.offset, left, right))
                left += rows * self.rank
                right += columns * self.rank
        return found


def _multiply(a: Array, b: Array, out: Array) -> None:
    """out ← a b; infinity, of a training that diverged, may make NaN, and is no reason to warn."""
    with np.errstate(invalid="ignore", over="ignore"):
        np.matmul(a, b, out=out)


def _orthonormal(columns: Array) -> Array:
    """An orthonormal basis (rows, r) that spans these columns (Householder); theirs may be of any rank."""
    basis: Array = np.linalg.qr(columns)[0]
    return basis
