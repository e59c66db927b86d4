"""SGD with parameter servers: agents push gradients and pull parameters; the server makes the updates"""

import math
from typing import final

import numpy as np

from d5ray.checks import MOST_RANKS, check_count, check_kind
from d5ray.distributed.compression.compressor import Compressor
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.parameter_server.consistency import Consistency, StaleSynchronous, Synchronous
from d5ray.distributed.parameter_server.server_rules import (
    DelayCompensated,
    ServerRule,
    StalenessAware,
    check_weight,
)
from d5ray.errors import ConfigurationError
from d5ray.training.arrays import copy_of, zeros_like
from d5ray.training.batches.batch import Batch


class ServerSGD(DistributedOptimizer):
    """A rule with a gradient a step to the servers, and their parameters back; subclasses choose the servers.

    The servers' x is the one that counts, and every push enters it once, by its agent and number; so agents'
    copies, which the next pull overwrites, are not compared. A push that a dead agent began is there or not.

    compressor: pushes are C(g + e), e ← g + e − C(g + e), with an e of every agent; pulls stay as they are.
    """

    exchange = ExchangeVia.SERVERS
    invariant = "ledger"

    def __init__(self, compressor: Compressor | None = None) -> None:
        check_kind("compressor", compressor, Compressor | None, "a Compressor such as TopK(0.01), or None")
        self.compressor = compressor

    def start(self) -> None:
        if self.compressor is not None:
            self.server.compress(self.compressor, self.rng)

    @final
    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        if self.compressor is not None and self._unused:
            self._check_zeros_stay(self.compressor, self._unused[0])
        self.server.push_pull(gradient, into=self.x)

    def _check_zeros_stay(self, compressor: Compressor, unused: str) -> None:
        """Raise `ConfigurationError` where a compressor moves a parameter without a gradient."""
        zeros = np.zeros(8, np.float32)
        zeros[0] = 1
        message = compressor.compress(zeros, np.random.default_rng(0))
        if compressor.decompress(message, len(zeros), zeros.dtype)[1:].any():
            raise ConfigurationError(
                f"the model's parameter {unused!r} got no gradient in step {self._moment}, and "
                f"{compressor!r} would move it all the same, as it has no sign for zero: let it require no "
                "gradient, or choose a compressor that keeps zeros, such as TopK(0.01)"
            )

    def gradient_factor(self, batch: Batch, weight: float | None) -> float:
        self.server.counts = self.loss_weight  # where several pushes become one update
        if weight == 0.0:
            return 0.0
        return batch.weight if weight is None and self.asynchronous else 1.0

    @final
    def finish(self) -> None:
        self.server.pull(into=self.x)


@final
class ParameterServerSGD(ServerSGD):
    """x ← U( (1/P) Σ_i g_i(x), x ) at the servers.

    U is the base optimizer's update, whose state the servers have. Centralized, synchronous and consistent:
    every step equals that of `AllreduceSGD`. With `backups` b an update takes the P − b gradients that come
    first (Chen et al., arXiv:1604.00981).
    """

    asynchronous = False

    def __init__(self, backups: int = 0, compressor: Compressor | None = None) -> None:
        super().__init__(compressor)
        check_count("backups", backups, 0, MOST_RANKS)
        self.backups = backups

    @property
    def consistency(self) -> Consistency:
        return Synchronous(self.backups)


@final
class ASGD(ServerSGD):
    """x ← U( g_i(x_{t−τ}), x_t ) at the servers, whenever a gradient comes.

    τ is how many updates the gradient's agent has not seen. Centralized and asynchronous: nobody waits for
    anybody (Downpour with a period of 1: Dean et al., NIPS 2012; Lian et al., arXiv:1506.08272). With one
    agent it is the base optimizer itself.
    """


@final
class StaleSynchronousSGD(ServerSGD):
    """x ← U( g_i(x') / P, x ) at the servers, where x' lacks at most the last `bound` pushes of any agent.

    (SSP: Ho et al., NIPS 2013.) Centralized, stale-synchronous: a fast agent waits when it would be more than
    `bound` steps ahead of the slowest. With a bound of 0 and SGD it is `ParameterServerSGD`.
    """

    def __init__(self, bound: int, compressor: Compressor | None = None) -> None:
        super().__init__(compressor)
        check_count("bound", bound, low=0)
        self.bound = bound

    @property
    def consistency(self) -> Consistency:
        return StaleSynchronous(self.bound)


@final
class StalenessAwareSGD(ServerSGD):
    """ASGD with the learning rate η / max(τ, 1) for a gradient that lacks τ updates.

    (Zhang et al., arXiv:1511.05950.) Centralized and asynchronous.
    """

    @property
    def server_rule(self) -> ServerRule:
        return StalenessAware()


@final
class DelayCompensatedASGD(ServerSGD):
    """x ← U( g + λ g ⊙ g ⊙ (x − x_read), x ) at the servers.

    x_read is what the agent had read when it computed g; λ is `lam`, and with `decay` it adapts (DC-ASGD-c
    and -a: Zheng et al., arXiv:1609.08326). Centralized and asynchronous. With λ = 0 it is `ASGD`.
    """

    def __init__(self, lam: float, decay: float | None = None, compressor: Compressor | None = None) -> None:
        super().__init__(compressor)
        check_weight("lam", lam, math.inf)
        if decay is not None:
            check_weight("decay", decay, 1.0)
        self.lam = lam
        self.decay = decay

    @property
    def server_rule(self) -> ServerRule:
        return DelayCompensated(self.lam, self.decay)


class Exploring(DistributedOptimizer):
    """self.x is the agent's own between evaluations, and the servers' parameters in them."""

    exchange = ExchangeVia.SERVERS
    invariant = "ledger"

    def start(self) -> None:
        self.explored = copy_of(self.x)

    @final
    def finish(self) -> None:
        self.explored[...] = self.x
        self.server.pull(into=self.x)

    @final
    def resume(self) -> None:
        self.x = self.explored


@final
class Downpour(Exploring):
    """x_i ← x_i − η g_i, a ← a + g_i; every n_push steps the servers get a, every n_fetch steps x_i ← theirs.

    (Downpour SGD: Dean et al., NIPS 2012.) n_push is `push_period`, n_fetch `fetch_period`; the agent's own
    steps between two fetches are plain SGD with the base optimizer's learning rate, the servers' update is
    the base optimizer's. Centralized and asynchronous; with periods of 1 it is `ASGD`.
    """

    def __init__(self, push_period: int = 1, fetch_period: int = 1) -> None:
        check_count("push_period", push_period, low=1)
        check_count("fetch_period", fetch_period, low=1)
        self.push_period = push_period
        self.fetch_period = fetch_period

    def start(self) -> None:
        super().start()
        self.accrued = zeros_like(self.x)

    def meets_after(self, steps: int) -> bool:
        return steps % self.push_period == 0

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        self.accrued += gradient
        self.x -= self.learning_rate * gradient
        if (batch.step + 1) % self.push_period == 0:
            self.server.push(self.accrued)
            self.accrued[...] = 0
        if (batch.step + 1) % self.fetch_period == 0:
            self.server.pull(into=self.x)
