"""Elastic averaging: agents explore by themselves, on a spring to a centre that the servers hold"""

from typing import final

from d5ray.checks import check_count
from d5ray.distributed.optimizers.parameter_server_sgd import Exploring
from d5ray.distributed.parameter_server.consistency import Consistency, Synchronous
from d5ray.distributed.parameter_server.server_rules import Elastic, ServerRule, check_weight
from d5ray.training.arrays import zeros_like
from d5ray.training.batches.batch import Batch


class ElasticAveraging(Exploring):
    """x_i ← U(g_i(x_i), x_i) − d_i;  c ← c + Σ d_i;  d_i = α (x_i − c), every `period` steps.

    c is the centre, which the servers hold and which is evaluated; U is the base optimizer's update, with
    state of every agent: Nesterov's momentum makes it EAMSGD (Zhang, Choromanska, LeCun, arXiv:1412.6651).
    Σ x_i + c changes by the agents' own updates alone; a dead agent's d may be in c while its x_i is gone.
    """

    invariant = "centre"

    def __init__(self, alpha: float, period: int = 1) -> None:
        check_weight("alpha", alpha, 1.0, high_included=True)
        check_count("period", period, low=1)
        self.alpha = alpha
        self.period = period

    @property
    def server_rule(self) -> ServerRule:
        return Elastic(self.alpha)

    def start(self) -> None:
        super().start()
        self.d = zeros_like(self.x)

    @final
    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        if batch.step % self.period == 0:
            self.server.push_pull(self.x, into=self.d)
            self.x -= self.d
        self.apply(gradient)


@final
class EASGD(ElasticAveraging):
    """Elastic averaging where every agent meets the centre at its own time, c being what it is then.

    Centralized and asynchronous.
    """


@final
class SynchronousEASGD(ElasticAveraging):
    """Elastic averaging where all meet the centre at once: c ← (1 − β) c + β x̄ with β = P α.

    Centralized and synchronous; stable for β of at most 1.
    """

    asynchronous = False

    @property
    def consistency(self) -> Consistency:
        return Synchronous()
