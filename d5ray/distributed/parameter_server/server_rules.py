"""Server-side update rules: how the vectors that agents push change the parameters"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from d5ray.checks import KnownKeywords, check_count, is_number, shown
from d5ray.distributed.parameter_server.requests import Array, Request
from d5ray.errors import ConfigurationError
from d5ray.training.optimizers.gradient_descent import Nesterov
from d5ray.training.optimizers.optimizer import Optimizer, State

ALL = slice(None)


@dataclass
class ShardContents:
    """The contents of a shard: the parameters x (n,), the base optimizer with its state, the rule's own."""

    x: Array
    base: Optimizer
    state: State
    own: dict[str, Any]
    read: dict[int, Array]  # by agent: the x that it read last, where the rule asks for it


class ServerRule(KnownKeywords, ABC):
    """A rule is frozen data; it treats every coordinate equally, so several shards equal one server.

    keeps_reads: whether `ShardContents.read` is kept, n numbers per agent. replies: whether `push_pull` gives
    an agent the result that `update` wrote for its request, instead of the parameters.
    """

    keeps_reads: ClassVar[bool] = False
    replies: ClassVar[bool] = False

    @abstractmethod
    def update(self, held: ShardContents, pushes: Sequence[Request]) -> None:
        """Change held.x in place by the pushed vectors: of one agent, or of several in the order of ranks."""

    def own(self, x: Array) -> dict[str, Any]:
        """The rule's own state before the first push."""
        return {}

    def check(self, base: Optimizer) -> None:
        """Raise `ConfigurationError` unless the rule fits this base optimizer."""

    def among(self, members: int) -> "ServerRule":
        """The rule for this number of agents, or groups of agents, that push."""
        return self


@final
@dataclass(frozen=True)
class Descend(ServerRule):
    """x ← U(ḡ, x): the base optimizer's update by the mean of the pushed vectors.

    A large x is updated in blocks that fit the cache, which halves the time and gives the same bits.
    """

    def update(self, held: ShardContents, pushes: Sequence[Request]) -> None:
        held.base.advance(held.state)
        for block, state in held.base.blocks(held.x, held.state):
            held.base.update(held.x[block], mean(pushes, block), state)


@final
@dataclass(frozen=True)
class StalenessAware(ServerRule):
    """x ← U(g, x) with the learning rate η / max(τ, 1); τ: updates since its agent read x.

    (Zhang et al., arXiv:1511.05950)
    """

    def check(self, base: Optimizer) -> None:
        if not dataclasses.is_dataclass(base):
            raise ConfigurationError(
                f"{self!r} changes the optimizer's learning rate for a push, which needs a dataclass with "
                f"the field learning_rate, found {base!r}: make it one, as SGD is"
            )

    def update(self, held: ShardContents, pushes: Sequence[Request]) -> None:
        staleness = max(1, *(push.staleness for push in pushes))
        held.base.advance(held.state)
        now = held.base.current(held.state)
        now = now.with_rate(now.learning_rate / staleness)
        for block, state in held.base.blocks(held.x, held.state):
            now.update(held.x[block], mean(pushes, block), state)


@final
@dataclass(frozen=True)
class DelayCompensated(ServerRule):
    """x ← U(g + λ g ⊙ g ⊙ (x − x_read), x)   (DC-ASGD: Zheng et al., arXiv:1609.08326).

    x_read is what the agent had read when it computed g. λ is `lam`; with `decay` m it is adapted as in
    DC-ASGD-a: λ / √(v + ε), v ← m v + (1 − m) g ⊙ g, ε = 10⁻⁷. λ = 0 is ASGD.
    """

    lam: float
    decay: float | None = None
    keeps_reads: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_weight("lam", self.lam, math.inf)
        if self.decay is not None:
            check_weight("decay", self.decay, 1.0)

    def own(self, x: Array) -> dict[str, Any]:
        return {} if self.decay is None else {"square": np.zeros_like(x)}

    def update(self, held: ShardContents, pushes: Sequence[Request]) -> None:
        corrected = np.zeros_like(held.x)
        for push in pushes:
            g = _scaled(push)
            corrected += g + self._lam(held, g) * g * g * (held.x - held.read[push.rank])
        if len(pushes) > 1:
            corrected /= len(pushes)
        held.base.step(held.x, corrected, held.state)

    def _lam(self, held: ShardContents, g: Array) -> Any:
        if self.decay is None:
            return self.lam
        square = held.own["square"]
        square *= self.decay
        square += (1 - self.decay) * g * g
        return self.lam / np.sqrt(square + 1e-7)


@final
@dataclass(frozen=True)
class Elastic(ServerRule):
    """d_i = α (x_i − c);  c ← c + Σ d_i; agent i gets d_i   (EASGD: Zhang et al., arXiv:1412.6651).

    c is the shard's x. Agents whose x_i arrived together have d_i from the same c.
    """

    alpha: float
    replies: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_weight("alpha", self.alpha, 1.0, high_included=True)

    def update(self, held: ShardContents, pushes: Sequence[Request]) -> None:
        for push in pushes:
            assert push.vector is not None
            push.result = self.alpha * (push.vector - held.x)
        for push in pushes:
            held.x += push.result


@final
@dataclass(frozen=True)
class DelayedNesterov(ServerRule):
    """Every push x ← x − (η/N) Δ, every N-th one more: m ← β m + ΣΔ/N;  x ← x − η β m.

    η and β are those of the base optimizer, a `Nesterov`; the Δ of agents that overtake each other enter the
    momentum m together (Liu et al., arXiv:2401.09135, with c = 0). N is `period`, by default the number of
    agents that push, so that m receives about one Δ of each; N = 1 is Nesterov momentum.
    """

    period: int | None = None

    def __post_init__(self) -> None:
        if self.period is not None:
            check_count("period", self.period)

    def check(self, base: Optimizer) -> None:
        if not isinstance(base, Nesterov):
            raise ConfigurationError(f"{self!r} goes with Nesterov(0.7, 0.9) or the like, found {base!r}")

    def among(self, members: int) -> ServerRule:
        return self if self.period is not None else DelayedNesterov(members)

    def own(self, x: Array) -> dict[str, Any]:
        return {"pushes": 0, "momentum": np.zeros_like(x), "sum": np.zeros_like(x)}

    def update(self, held: ShardContents, pushes: Sequence[Request]) -> None:
        own, base = held.own, held.base
        assert self.period is not None
        delta = mean(pushes)
        own["sum"] += delta
        own["pushes"] += 1
        held.x -= base.learning_rate / self.period * delta
        if own["pushes"] % self.period == 0:
            m = own["momentum"]
            m *= base.momentum  # type: ignore[attr-defined]
            m += own["sum"] / self.period
            held.x -= base.learning_rate * base.momentum * m  # type: ignore[attr-defined]
            own["sum"][...] = 0


def mean(pushes: Sequence[Request], block: slice = ALL) -> Array:
    """(((g₀ + g₁) + g₂) + …) / n, in the order given, or a block of it; of one push the vector itself.

    Each counts for `Request.counts`: Σ cᵢ gᵢ / Σ cᵢ.
    """
    if len(pushes) == 1:
        return _scaled(pushes[0], block)
    counts = [push.counts for push in pushes]
    if len(set(counts)) == 1:
        counts = [1.0] * len(pushes)
    counts = [count / max(counts) for count in counts]  # so that no product is too large for the type
    total = _scaled(pushes[0], block, counts[0]) + _scaled(pushes[1], block, counts[1])
    for push, count in zip(pushes[2:], counts[2:], strict=True):
        total += _scaled(push, block, count)
    total /= sum(counts)
    return total


def _scaled(push: Request, block: slice = ALL, count: float = 1.0) -> Array:
    assert push.vector is not None
    vector, scale = push.vector[block], push.scale * count
    return vector if scale == 1.0 else vector * vector.dtype.type(scale)


def check_weight(name: str, value: object, high: float, *, high_included: bool = False) -> None:
    """Raise `ConfigurationError` unless a rule's weight is a finite number from 0 up to this bound."""
    if not is_number(value) or value < 0 or value > high or (value == high and not high_included):  # type: ignore[operator]
        bound = "" if high == math.inf else f", {'at most' if high_included else 'below'} {high:g}"
        raise ConfigurationError(f"{name} is {shown(value)}: it must be a finite number of at least 0{bound}")
