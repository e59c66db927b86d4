"""Hierarchical averaging: often the mean of a group, more rarely the mean of all"""

from typing import final

from d5ray.checks import check_count
from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import ConfigurationError
from d5ray.training.batches.batch import Batch


@final
class HierarchicalAveraging(DistributedOptimizer):
    """x_i ← U(g_i(x_i), x_i);  after every τ₁-th step the mean of the group, after every τ₂-th that of all.

    Groups are `group_size` consecutive ranks (the last may be smaller), such as the agents of one node;
    τ₁ is `period`, τ₂ is `global_period`, a multiple of it; U is the base optimizer's update (Wang et al.,
    arXiv:2010.12998). The mean of all is taken on two levels: the groups' first ranks average the groups'
    means, weighted with the groups' sizes, and hand the result on. Decentralized; inconsistent between two
    means, when every agent evaluates its own x_i. The base optimizer's state is each agent's own, and is
    never averaged. Buffers are averaged, like the models.
    """

    buffer_policy = SynchronizedBuffers()
    invariant = "one model"
    own_base_state = True

    def __init__(self, group_size: int, period: int, global_period: int) -> None:
        check_count("group_size", group_size, low=1)
        check_count("period", period, low=1)
        check_count("global_period", global_period, low=1)
        if global_period % period:
            raise ConfigurationError(
                f"global_period is {global_period}, period is {period}: a mean of all begins with the means "
                f"of the groups, so take a multiple of {period}"
            )
        self.group_size = group_size
        self.period = period
        self.global_period = global_period

    def start(self) -> None:
        agents, size = self.communication.size, self.group_size
        first = self.communication.rank // size * size
        self.group = self.communication.subgroup(range(first, min(first + size, agents)))
        self.share = self.group.size / agents
        leads = self.communication.rank == first
        self.leaders = self.communication.subgroup(range(0, agents, size)) if leads else None

    def equal_after(self, steps: int) -> bool:
        return steps % self.global_period == 0

    def step(self, batch: Batch) -> None:
        self.apply(self.gradient(batch))
        if (batch.step + 1) % self.period:
            return
        whole = (batch.step + 1) % self.global_period == 0
        with self.agreed_bits_stay(self.communication if whole else self.group):
            self.group.allreduce(self.x, "mean")
            if whole and self.leaders:
                self.x *= self.share
                self.leaders.allreduce(self.x)
            if whole:
                self.group.broadcast(self.x)
