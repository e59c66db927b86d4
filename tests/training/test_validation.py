"""Claims about validation: right rules pass, wrong ones fail at the step and by the norm that are theirs"""

from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError, ValidationError
from d5ray.training.validation.problems import PROBLEMS, Quadratic, ValidationProblem
from d5ray.training.validation.validation import trajectory

Vector = np.ndarray[Any, Any]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: type(problem).__name__)
def test_the_gradients_of_the_problems_are_their_slopes(problem: ValidationProblem) -> None:
    """Against central differences, at ten points: to 1e-7."""
    rng = np.random.default_rng(1)
    for _ in range(10):
        x, way = (
            problem.start + rng.standard_normal(len(problem.start)),
            rng.standard_normal(len(problem.start)),
        )
        slope = (problem.value(x + 1e-5 * way) - problem.value(x - 1e-5 * way)) / 2e-5
        assert problem.gradient(x) @ way == pytest.approx(slope, rel=1e-6, abs=1e-7)
    assert sum(slot.size for slot in problem.slots) == len(problem.start)


def test_a_rule_is_compared_with_a_rule_a_framework_s_own_or_a_function() -> None:
    """Adam against torch.optim's, Momentum against a loop; a report has a line for each problem."""

    def heavy_ball(start: Vector, gradient: Any, steps: int) -> list[Vector]:
        x, v, found = start, np.zeros_like(start), []
        for _ in range(steps):
            v = 0.9 * v + gradient(x)
            x = x - 0.1 * v
            found.append(x)
        return found

    report = d5.optimizers.check_optimizer(
        d5.optimizers.Adam(0.01), reference=d5.optimizers.TorchOptimizer("Adam", lr=0.01), tolerance=1e-9
    )
    assert report.passed
    assert [line.split(":")[0].strip() for line in str(report).splitlines()[1:]] == [
        "Quadratic",
        "SmallNetwork",
    ]
    assert d5.optimizers.check_optimizer(
        d5.optimizers.Momentum(0.1, 0.9), reference=heavy_ball, tolerance=1e-12, steps=50
    ).passed


def test_single_precision_is_near_double_precision() -> None:
    """Adam in PyTorch's float32 against float64: within 1e-4 of the way, not within 1e-9."""

    def single(values: Vector) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32)

    report = d5.optimizers.check_optimizer(
        d5.optimizers.Adam(0.01), reference=d5.optimizers.Adam(0.01), array=single, tolerance=1e-4
    )
    assert 1e-9 < max(report.deviations[0].relative) < 1e-4
    with pytest.raises(ValidationError, match=r"Adam.*FAILED"):
        d5.optimizers.check_optimizer(
            d5.optimizers.Adam(0.01), reference=d5.optimizers.Adam(0.01), array=single, tolerance=1e-9
        )


class LateMistake(d5.optimizers.UpdateRuleOptimizer):
    """Gradient descent, which from its sixth step on takes a part of one tensor twice."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__(learning_rate)
        self.steps = 0

    def update_rule(self, grad: Any, old_param: Any, param_name: str) -> Any:
        self.steps += param_name == "vector"
        factor = 1.5 if self.steps > 5 and param_name == "vector" else 1.0
        return old_param - factor * self.learning_rate * grad


def test_a_mistake_is_found_at_its_step_and_with_its_size() -> None:
    """Right for five steps, then half a step too far: ‖difference‖ = η / 2 · ‖g‖ of that tensor."""
    problem = Quadratic()
    with pytest.raises(ValidationError) as caught:
        d5.optimizers.check_optimizer(
            LateMistake(0.1), reference=d5.optimizers.SGD(0.1), problems=[problem], steps=9
        )
    assert "Quadratic: departs from the reference at step 6, by more than a relative 1e-06" in str(
        caught.value
    )
    report = d5.optimizers.check_optimizer(
        LateMistake(0.1), reference=d5.optimizers.SGD(0.1), problems=[problem], steps=9, tolerance=1.0
    )
    (deviation,) = report.deviations
    before = trajectory(d5.optimizers.SGD(0.1), problem, 5, np.array)[-1]
    expected = 0.05 * np.linalg.norm(problem.gradient(before)[12:15])
    assert deviation.norms[:5] == (0.0,) * 5
    assert deviation.norms[5] == pytest.approx(expected, rel=1e-9)
    moved = np.linalg.norm(trajectory(d5.optimizers.SGD(0.1), problem, 6, np.array)[-1] - problem.start)
    assert deviation.relative[5] == pytest.approx(expected / moved, rel=1e-9)
    assert deviation.worst_element >= abs(deviation.norms[5]) / 3**0.5


class Spoils(d5.Optimizer):
    learning_rate = 0.1

    def update(self, x: Any, gradient: Any, state: Any) -> None:
        gradient *= 0.1
        x -= gradient


class Explodes(d5.Optimizer):
    learning_rate = 0.1

    def update(self, x: Any, gradient: Any, state: Any) -> None:
        x *= float("nan")


def test_what_is_no_rule_is_said() -> None:
    """A changed gradient, NaN, a reference of the wrong length, no rule at all."""
    with pytest.raises(ValidationError, match="changed the gradient at step 1"):
        d5.optimizers.check_optimizer(Spoils(), reference=d5.optimizers.SGD(0.1))
    with pytest.raises(ValidationError, match="departs from the reference at step 1"):
        d5.optimizers.check_optimizer(Explodes(), reference=d5.optimizers.SGD(0.1))
    with pytest.raises(ConfigurationError, match=r"gave 1 parameters: it must be a .* each of 4 steps"):
        d5.optimizers.check_optimizer(
            d5.optimizers.SGD(0.1), reference=lambda x, gradient, steps: [x], steps=4
        )
    with pytest.raises(ConfigurationError, match="it must be an Optimizer"):
        d5.optimizers.check_optimizer(0.1, reference=d5.optimizers.SGD(0.1))  # type: ignore[arg-type]


def test_a_training_is_compared_with_its_expected_curve() -> None:
    """Loss by epoch of a real run: itself, a part of it, one that is off, and one that is longer."""
    experiment = d5.Experiment("mlp", "digits", d5.optimizers.Momentum(0.05), agents=1, epochs=3, seed=4)
    with d5.simulate(experiment) as group:
        group.train(progress=False)
        rows = group.metrics().to_pandas()
    losses = rows[rows["metric"] == "test_loss"].set_index("epoch")["value"].to_dict()
    assert d5.optimizers.check_training(losses, losses, tolerance=0) == 0
    assert d5.optimizers.check_training(losses, {2: losses[2] + 0.01}, tolerance=0.02) == pytest.approx(0.01)
    with pytest.raises(ValidationError, match=r"1 of 3 values are off by more than 0\.05: 1: 0\.\d+ instead"):
        d5.optimizers.check_training(losses, losses | {1: losses[1] + 0.1}, tolerance=0.05)
    with pytest.raises(ValidationError, match="has 3 values and none at 3, 4"):
        d5.optimizers.check_training(losses, [0.0] * 5, tolerance=9)
    with pytest.raises(ValidationError, match="0: nan instead of 1"):
        d5.optimizers.check_training([float("nan")], [1.0], tolerance=9)
    with pytest.raises(ConfigurationError, match="expected is empty"):
        d5.optimizers.check_training(losses, {}, tolerance=0.1)
