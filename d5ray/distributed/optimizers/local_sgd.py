"""Local SGD and what else takes a mean of all models once in a while; outer optimizers go on from the mean"""

from abc import abstractmethod
from typing import Any, final

from d5ray.checks import check_count, check_kind, check_number, check_share
from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.training.arrays import NO_GRADIENT, copy_of, zeros_like
from d5ray.training.batches.batch import Batch
from d5ray.training.optimizers.gradient_descent import Nesterov
from d5ray.training.optimizers.optimizer import Optimizer, part_of

OUTER = Nesterov(0.7, 0.9)  # as in DiLoCo's paper


class PeriodicAveraging(DistributedOptimizer):
    """H local steps x_i ← U(g_i(x_i), x_i);  then x_i ← x̄ = (1/P) Σ_j x_j.

    H is `period`, U the base optimizer's update. Decentralized; inconsistent within a period, when every
    agent evaluates its own x_i. The base optimizer's state is each agent's own, goes over from period to
    period and is never averaged. All agents start from equal x_i. Buffers are averaged, like the models.
    """

    buffer_policy = SynchronizedBuffers()
    invariant = "one model"
    own_base_state = True

    def __init__(self, period: int) -> None:
        check_count("period", period, low=1)
        self.period = period

    def equal_after(self, steps: int) -> bool:
        return steps % self.period == 0

    def step(self, batch: Batch) -> None:
        self.apply(self.gradient(batch))
        if self.equal_after(batch.step + 1):
            self.leave_period()

    def leave_period(self) -> None:
        """Make of all models the one that the next period begins with: their mean."""
        with self.agreed_bits_stay(self.communication):
            self.communication.allreduce(self.x, "mean")


@final
class LocalSGD(PeriodicAveraging):
    """x_i ← U(g_i(x_i), x_i);  after every H-th step  x_i ← (1/P) Σ_j x_j.

    (Stich, arXiv:1805.09767.) With H = 1 and a linear U (SGD, momentum) this equals `AllreduceSGD`.
    """


@final
class ModelAveraging(PeriodicAveraging):
    """x ← (1/P) Σ_j U(g_j(x), x): local SGD with a mean after every step, a period of 1.

    (McDonald, Hall and Mann, NAACL 2010; model consolidation in the survey's terms: Ben-Nun and Hoefler,
    arXiv:1802.09941.) So it is consistent. For a U that is linear in gradient and state (SGD, momentum) it
    equals `AllreduceSGD`; for others, such as Adam, it does not.
    """

    period = 1

    def __init__(self) -> None:
        pass


@final
class PostLocalSGD(PeriodicAveraging):
    """The first T steps x ← U( (1/P) Σ_j g_j(x), x );  then local SGD: a mean after every H-th step.

    T is `synchronous_steps`, and H is counted from step T on (Lin et al., arXiv:1808.07217). Consistent in
    the first phase, in which the base optimizer's state is equal on all agents.
    """

    def __init__(self, synchronous_steps: int, period: int) -> None:
        check_count("synchronous_steps", synchronous_steps, low=0)
        self.synchronous_steps = synchronous_steps
        super().__init__(period)

    def equal_after(self, steps: int) -> bool:
        return steps <= self.synchronous_steps or (steps - self.synchronous_steps) % self.period == 0

    def step(self, batch: Batch) -> None:
        if batch.step < self.synchronous_steps:
            gradient = self.gradient(batch)
            self.communication.allreduce(gradient, "mean")
            self.apply(gradient)
        else:
            super().step(batch)


class OuterOptimization(PeriodicAveraging):
    """H local steps x_i ← U(g_i(x_i), x_i);  then Δ = x − x̄;  x ← outer(x, Δ);  x_i ← x.

    x is the common model of the last period, Δ what the period changed, as a gradient of the outer
    optimizer, whose state is equal on all agents.
    """

    def start(self) -> None:
        self.common = copy_of(self.x)

    @final
    def leave_period(self) -> None:
        self.x = self.common - self.x
        self.communication.allreduce(self.x, "mean")
        self.outer_step(self.x)
        self.x = self.common

    @abstractmethod
    def outer_step(self, delta: Any) -> None:
        """Update `self.common` by Δ (n,), whose memory is the caller's no longer."""


@final
class DiLoCo(OuterOptimization):
    """Δ = x − x̄ after H local steps;  x ← outer(x, Δ)   (Douillard et al., arXiv:2311.08105).

    `outer` is any optimizer; in the paper it is this Nesterov, and U is AdamW. outer=SGD(1) is local SGD.
    """

    shared_state = ("common", "outer_state")

    def __init__(self, period: int, outer: Optimizer = OUTER) -> None:
        super().__init__(period)
        check_kind("outer", outer, Optimizer, f"an Optimizer such as {OUTER!r}")
        self.outer = outer

    def start(self) -> None:
        super().start()
        self.outer_state = self.outer.state_for(self.common, self.slots)

    def outer_step(self, delta: Any) -> None:
        still = (slot for slot in self.unused_by_all() if not bool(part_of(delta, slot).any()))
        self.outer.step(self.common, delta, self.outer_state, tuple(still))


@final
class SlowMo(OuterOptimization):
    """Δ = x − x̄ after H local steps;  u ← β u + Δ / γ;  x ← x − α γ u   (Wang et al., arXiv:1910.00643).

    γ is the base optimizer's learning rate, β `slow_momentum`, α `slow_learning_rate`; over local SGD, with
    the paper's "maintain" of the base optimizer's state. (β, α) = (0, 1) is local SGD.
    """

    shared_state = ("common", "u")

    def __init__(self, period: int, slow_momentum: float = 0.7, slow_learning_rate: float = 1.0) -> None:
        super().__init__(period)
        check_share("slow_momentum", slow_momentum)
        check_number("slow_learning_rate", slow_learning_rate, low=0.0, low_included=False)
        self.slow_momentum = slow_momentum
        self.slow_learning_rate = slow_learning_rate

    def start(self) -> None:
        super().start()
        self.u = zeros_like(self.x)

    def outer_step(self, delta: Any) -> None:
        self.u *= self.slow_momentum
        self.u += delta / self.learning_rate
        self.common -= self.slow_learning_rate * self.learning_rate * self.u


@final
class BMUF(OuterOptimization):
    """Δ = x − x̄ after H local steps;  D ← μ D − ζ Δ;  x ← x + D.

    Blockwise model-update filtering, with classical block momentum (Chen and Huo, doi
    10.1109/ICASSP.2016.7472805): μ is `block_momentum`, ζ is `block_learning_rate`, a block a period.
    (μ, ζ) = (0, 1) is local SGD.
    """

    shared_state = ("common", "change")

    def __init__(self, period: int, block_momentum: float = 0.9, block_learning_rate: float = 1.0) -> None:
        super().__init__(period)
        check_share("block_momentum", block_momentum)
        check_number("block_learning_rate", block_learning_rate, low=0.0, low_included=False)
        self.block_momentum = block_momentum
        self.block_learning_rate = block_learning_rate

    def start(self) -> None:
        super().start()
        self.change = zeros_like(self.x)
        self.change[...] = NO_GRADIENT  # so that -0.0 stays

    def outer_step(self, delta: Any) -> None:
        self.change *= self.block_momentum
        self.change -= self.block_learning_rate * delta
        self.common += self.change
