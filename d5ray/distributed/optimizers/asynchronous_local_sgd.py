"""Local steps without a common end: each agent brings what a period changed to the servers when it is done"""

from typing import final

from d5ray.checks import check_count, check_kind
from d5ray.distributed.optimizers.parameter_server_sgd import Exploring
from d5ray.distributed.parameter_server.server_rules import DelayedNesterov, Descend, ServerRule
from d5ray.errors import ConfigurationError
from d5ray.training.arrays import copy_of
from d5ray.training.batches.batch import Batch
from d5ray.training.optimizers.gradient_descent import SGD, Nesterov
from d5ray.training.optimizers.optimizer import Optimizer

QUARTER = SGD(0.25)  # agents of equal speed come nearly at once, and their periods add up
OUTER = Nesterov(0.7, 0.3)  # η / (1 − β) = 1


class LocalPeriods(Exploring):
    """H steps x_i ← U(g_i(x_i), x_i);  then Δ_i = x − x_i;  x ← outer(x, Δ_i) at the servers;  x_i ← x.

    x on the right of Δ_i is what the agent had read when its period began; outer has state at the servers, U
    state of every agent that is never averaged. H is `period`, or one number for each agent: agents of
    different speed come in turn when H_i is proportional to the speed.
    """

    def __init__(self, period: int | tuple[int, ...], outer: Optimizer) -> None:
        for steps in period if isinstance(period, tuple) else (period,):
            check_count("period", steps, low=1)
        check_kind("outer", outer, Optimizer, f"an Optimizer such as {OUTER!r}")
        self.period = period
        self.outer = outer

    @property
    def server_optimizer(self) -> Optimizer | None:
        return self.outer

    def start(self) -> None:
        super().start()
        self.begin = copy_of(self.x)
        self.steps = self._own(self.period) if isinstance(self.period, tuple) else self.period

    def meets_after(self, steps: int) -> bool:
        return isinstance(self.period, tuple) or steps % self.period == 0

    @final
    def step(self, batch: Batch) -> None:
        self.apply(self.gradient(batch))
        if (batch.step + 1) % self.steps == 0:
            self.begin -= self.x
            self.server.push_pull(self.begin, into=self.x)
            self.begin[...] = self.x

    def _own(self, periods: tuple[int, ...]) -> int:
        if len(periods) != self.communication.size:
            raise ConfigurationError(
                f"period has {len(periods)} numbers for {self.communication.size} agents: give one for each"
            )
        return periods[self.communication.rank]


@final
class AsynchronousLocalSGD(LocalPeriods):
    """Local SGD whose agents come to the servers one by one; outer is plain SGD unless said otherwise.

    outer=SGD(α) makes x ← (1 − α) x + α x_i where nobody came in between (FedAsync: Xie et al.,
    arXiv:1903.03934). Centralized and asynchronous.
    """

    def __init__(self, period: int | tuple[int, ...], outer: Optimizer = QUARTER) -> None:
        super().__init__(period, outer)


@final
class AsynchronousDiLoCo(LocalPeriods):
    """DiLoCo whose agents come to the servers one by one.

    (Liu et al., arXiv:2401.09135.) outer is Nesterov's momentum, which takes in the mean of N periods' Δ at a
    time, see `DelayedNesterov`: one with every single Δ would add the same direction up to N times. N is
    `delay`, by default the number of agents; delay=1 is plain momentum, and any other outer is applied to
    every Δ at once. Centralized and asynchronous.

    outer deviates from the papers' Nesterov(0.7, 0.9), which moves x by η / (1 − β) = 7 times the mean Δ in
    the long run: LeNet and the multilayer perceptron run away, in the simulation, after some periods of
    Momentum(0.05, 0.9) on digits. Nesterov(0.7, 0.3) moves x by the mean Δ, once; two, four and eight agents
    learn, one of them three times slower or not.
    """

    def __init__(
        self, period: int | tuple[int, ...], outer: Optimizer = OUTER, delay: int | None = None
    ) -> None:
        super().__init__(period, outer)
        if delay is not None:
            DelayedNesterov(delay).check(outer)
        self.delay = delay

    @property
    def server_rule(self) -> ServerRule:
        if self.delay is None and not isinstance(self.outer, Nesterov):
            return Descend()
        return DelayedNesterov(self.delay)
