"""Claims about rules written as Deep500 writes them, tensor by tensor under its name"""

from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.training.optimizers.optimizer import Optimizer


class Descent(d5.optimizers.UpdateRuleOptimizer):
    """w ← w − η g"""

    def update_rule(self, grad: Any, old_param: Any, param_name: str) -> Any:
        return old_param - self.learning_rate * grad


class HeavyBall(d5.optimizers.UpdateRuleOptimizer):
    """Momentum whose velocities lie in attributes of the rule."""

    def __init__(self, learning_rate: float, momentum: float) -> None:
        super().__init__(learning_rate)
        self.momentum = momentum
        self.velocities: dict[str, Any] = {}

    def update_rule(self, grad: Any, old_param: Any, param_name: str) -> Any:
        if param_name not in self.velocities:
            self.velocities[param_name] = grad * 0
        self.velocities[param_name] = self.momentum * self.velocities[param_name] + grad
        return old_param - self.learning_rate * self.velocities[param_name]


class LookAhead(d5.optimizers.ThreeStepOptimizer):
    """Nesterov's momentum as he wrote it: y = x + μ v;  v ← μ v − η g(y);  x ← x + v"""

    def __init__(self, learning_rate: float, momentum: float) -> None:
        super().__init__(learning_rate)
        self.momentum = momentum
        self.inputs = 0
        self.x: dict[str, Any] = {}
        self.v: dict[str, Any] = {}
        self.now: dict[str, Any] = {}

    def new_input(self) -> None:
        self.inputs += 1

    def prepare_param(self, param_name: str) -> Any:
        if param_name not in self.x:
            return None  # the first gradient is taken where the parameters are
        return self.x[param_name] + self.momentum * self.v[param_name]

    def update_rule(self, grad: Any, old_param: Any, param_name: str) -> Any:
        x = self.x.get(param_name, old_param + 0)
        v = self.momentum * self.v.get(param_name, grad * 0) - self.learning_rate * grad
        self.x[param_name], self.v[param_name] = x + v, v
        return self.x[param_name]


def trained(rule: Optimizer, steps: int = 12, agents: int = 2) -> np.ndarray[Any, Any]:
    """The parameters of agent 0 after that many steps of allreduce SGD on the digits, simulated."""
    wanted = d5.Experiment(
        model="lenet", dataset="digits", optimizer=rule, distributed=d5.optimizers.AllreduceSGD(),
        agents=agents,
        batch_size=16, seed=3, evaluate=False,
    )  # fmt: skip
    with d5.simulate(wanted) as group:
        group.train(steps, progress=False)
        return np.concatenate([array.ravel() for array in group.parameters().values()])


@pytest.mark.full
@pytest.mark.parametrize(
    ("own", "ready"),
    [(Descent(0.05), d5.optimizers.SGD(0.05)), (HeavyBall(0.02, 0.9), d5.optimizers.Momentum(0.02, 0.9))],
    ids=["descent", "heavy ball"],
)
def test_a_rule_by_tensors_is_the_rule_on_the_flat_buffer(own: Optimizer, ready: Optimizer) -> None:
    """Twelve steps of two agents in one process, to 1e-6: they do not share what the rule remembers."""
    found, expected = trained(own), trained(ready)
    assert np.linalg.norm(found - expected) < 1e-6 * np.linalg.norm(expected)
    if isinstance(own, HeavyBall):
        assert own.velocities == {}  # whoever trains has a copy


def test_the_three_steps_come_in_their_order() -> None:
    """`Nesterov` keeps y = x + μ v, to which `prepare_param` brings the original's x."""
    x = np.array([1.0, -2.0, 0.5])
    curvature = np.array([0.5, 1.0, 4.0])
    own, ready = LookAhead(0.1, 0.9), d5.optimizers.Nesterov(0.1, 0.9)
    slots = (Slot("a", 0, (2, 1)), Slot("b", 2, (1,)))
    state, other = own.state_for(x, slots), ready.state(x)
    y = x.copy()
    for _ in range(20):
        own.prepare(x, state)
        np.testing.assert_allclose(x, y, rtol=1e-12)
        own.step(x, curvature * x, state)
        ready.step(y, curvature * y, other)
    assert state["rule"].inputs == 20
    assert own.inputs == 0


def test_what_a_rule_must_return() -> None:
    class Forgets(d5.optimizers.UpdateRuleOptimizer):
        def update_rule(self, grad: Any, old_param: Any, param_name: str) -> Any:
            return None

    with pytest.raises(Exception, match=r"Forgets.update_rule returned None for .*it must return the new"):
        trained(Forgets(), steps=1)


def test_the_tensors_must_be_known() -> None:
    with pytest.raises(ConfigurationError, match="tensors by name"):
        Descent(0.1).state(np.zeros(3))
    with pytest.raises(ConfigurationError, match="learning_rate is 0"):
        Descent(0.0)
