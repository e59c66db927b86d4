"""What must hold of the rules that average models once in a while: one is another's special case"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest

from d5ray.distributed.optimizers.allreduce import AllreduceSGD
from d5ray.distributed.optimizers.hierarchical_averaging import HierarchicalAveraging
from d5ray.distributed.optimizers.local_sgd import (
    BMUF,
    DiLoCo,
    LocalSGD,
    ModelAveraging,
    PostLocalSGD,
    SlowMo,
)
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.topologies.topology import Complete
from d5ray.training.optimizers.gradient_descent import SGD, Momentum, Nesterov
from d5ray.training.optimizers.optimizer import Optimizer, State
from tests.distributed.quadratic import Array, batches_of, course, noise, quadratics

STEPS = 20
BASES: list[Optimizer] = [SGD(0.1), Momentum(0.05, 0.9), Nesterov(0.05, 0.9)]
Rule = DistributedOptimizer


@final
@dataclass(frozen=True)
class Sign(Optimizer):
    """x ← x − η sign(g): not linear, so its mean is not the step by the mean gradient."""

    learning_rate: float

    def update(self, x: Any, gradient: Any, state: State) -> None:
        x -= self.learning_rate * np.sign(gradient)


def trained(rule: Rule, base: Optimizer, agents: int) -> Array:
    """(STEPS + 1, agents, SIZE) from one start, on different quadratics with noise."""
    problem = quadratics(agents, same_start=True)
    return course(rule, base, Complete(agents), problem, batches_of(noise(agents, STEPS)))


SAME = [
    (LocalSGD(1), AllreduceSGD(), "H = 1 with a linear base optimizer, whose state stays local"),
    (ModelAveraging(), AllreduceSGD(), "the mean of linear updates is the update by the mean"),
    (PostLocalSGD(STEPS, 4), AllreduceSGD(), "nothing but the synchronous phase"),
    (PostLocalSGD(0, 4), LocalSGD(4), "no synchronous phase"),
    (DiLoCo(4, SGD(1.0)), LocalSGD(4), "outer SGD(1)"),
    (SlowMo(4, 0.0, 1.0), LocalSGD(4), "(β, α) = (0, 1)"),
    (SlowMo(4, 0.7, 0.8), DiLoCo(4, Momentum(0.8, 0.7)), "heavy ball of learning rate α and momentum β"),
    (BMUF(4, 0.0, 1.0), LocalSGD(4), "(μ, ζ) = (0, 1)"),
    (BMUF(4, 0.7, 0.8), DiLoCo(4, Momentum(0.8, 0.7)), "heavy ball of learning rate ζ and momentum μ"),
    (BMUF(1, 0.0, 1.0), ModelAveraging(), "(μ, ζ) = (0, 1) in every step"),
    (HierarchicalAveraging(2, 4, 4), LocalSGD(4), "U_m ⊗ U_k = U_mk, with the sizes of groups as weights"),
    (HierarchicalAveraging(3, 4, 4), LocalSGD(4), "U_m ⊗ U_k = U_mk, with the sizes of groups as weights"),
    (HierarchicalAveraging(1, 1, 4), LocalSGD(4), "groups of one"),
    (HierarchicalAveraging(8, 4, 20), LocalSGD(4), "one group of all"),
]  # fmt: skip


@pytest.mark.parametrize("base", BASES, ids=lambda base: type(base).__name__)
@pytest.mark.parametrize("agents", [2, 5, 8])
@pytest.mark.parametrize(("rule", "other", "why"), SAME, ids=[f"{a!r} = {b!r}" for a, b, _ in SAME])
def test_one_rule_is_another(rule: Rule, other: Rule, why: str, agents: int, base: Optimizer) -> None:
    """All agents' parameters after every step."""
    ours, theirs = trained(rule, base, agents), trained(other, base, agents)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13, err_msg=why)


@pytest.mark.parametrize("rule", [LocalSGD(1), ModelAveraging()], ids=repr)
def test_averages_of_updates_that_are_not_linear_are_not_allreduce(rule: Rule) -> None:
    """The mean of signs is not the sign of the mean: the first step differs already."""
    ours, theirs = trained(rule, Sign(0.1), 4), trained(AllreduceSGD(), Sign(0.1), 4)
    assert np.abs(ours[1] - theirs[1]).max() > 0.01


AVERAGING = [
    (LocalSGD(5), 5), (DiLoCo(5), 5), (SlowMo(5), 5), (BMUF(5), 5), (HierarchicalAveraging(2, 1, 5), 5),
    (PostLocalSGD(10, 5), 5), (ModelAveraging(), 1),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "period"), AVERAGING, ids=[repr(rule) for rule, _ in AVERAGING])
def test_agents_agree_after_every_period_and_only_then(rule: Rule, period: int) -> None:
    """Bit for bit equal after steps H, 2H, …; different after every other step that is a local one."""
    got = trained(rule, Momentum(0.05, 0.9), 5)
    local_from = rule.synchronous_steps if isinstance(rule, PostLocalSGD) else 0
    for step in range(1, STEPS + 1):
        if step % period == 0 or step <= local_from:
            assert (got[step] == got[step][0]).all()
        else:
            assert np.abs(got[step] - got[step][0]).max() > 1e-3
