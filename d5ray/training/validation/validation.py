"""Checks of update rules and trainings: whole trajectories compared with a reference"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from d5ray.checks import check_count, check_items, check_kind, check_rate, shown
from d5ray.errors import ConfigurationError, D5Error, ValidationError, first_line
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.validation.problems import PROBLEMS, ValidationProblem, Vector

Make = Callable[[Vector], Any]  # from NumPy's (n,) to the array that the rule is tried on
SHOWN: Final = 6  # lines of a report

# -- what is compared --------------------------------------------------------------------------------------

Reference = Optimizer | Callable[[Vector, Callable[[Vector], Vector], int], Sequence[Vector]]


@final
@dataclass(frozen=True)
class TrajectoryDeviation:
    """The distance of two trajectories at every step: ‖difference‖ over what the reference has moved."""

    name: str
    norms: tuple[float, ...]  # of the difference, one a step
    relative: tuple[float, ...]
    worst_element: float  # the largest difference of an element, of all steps
    tolerance: float

    @property
    def passed(self) -> bool:
        """True if no step departs by more than the tolerance; false for NaN."""
        return all(value <= self.tolerance for value in self.relative)  # false for nan

    @property
    def first_step(self) -> int | None:
        """The first step that is too far off, from 1; None if none is."""
        return next((n for n, value in enumerate(self.relative, 1) if not value <= self.tolerance), None)

    def __str__(self) -> str:
        """A line that says what came out, and the relative difference at some steps."""
        way = f"departs from the reference at step {self.first_step}, by more than"
        verdict = "goes with the reference, to" if self.passed else way
        steps = np.unique(np.linspace(1, len(self.norms), min(SHOWN, len(self.norms))).round().astype(int))
        shown = ", ".join(f"{step}: {self.relative[step - 1]:.2g}" for step in steps)
        return f"{self.name}: {verdict} a relative {self.tolerance:g}; difference at step {shown}"


@final
@dataclass(frozen=True)
class ValidationReport:
    """The result of `check_optimizer` on every problem; printing it gives a line for each."""

    rule: str
    deviations: tuple[TrajectoryDeviation, ...]

    @property
    def passed(self) -> bool:
        """True if the rule follows its reference on every problem."""
        return all(deviation.passed for deviation in self.deviations)

    def __str__(self) -> str:
        lines = [f"{self.rule}: {'passed' if self.passed else 'FAILED'}", *map(str, self.deviations)]
        return "\n  ".join(lines)


MOST_STEPS = 1_000_000  # that are compared one by one


def check_optimizer(
    optimizer: Optimizer,
    *,
    reference: Reference,
    steps: int = 30,
    tolerance: float = 1e-6,
    array: Make = np.array,
    problems: Sequence[ValidationProblem] = PROBLEMS,
) -> ValidationReport:
    """A report that a rule equals a reference, step by step; otherwise raises `ValidationError` with it.

    reference   another rule, which runs in float64 NumPy, such as `TorchOptimizer("Adam")` or `Adam()`; or a
                function (start (n,), gradient, steps) that returns the parameters after every step
    tolerance   of the difference's norm, relative to the distance that the reference has moved
    array       makes the rule's arrays, such as `torch.tensor`; by default float64 NumPy

    Both get the gradient at their own parameters, so deviations add up. The rule must not change the
    gradient.

    >>> from d5ray.training.optimizers.gradient_descent import SGD, Momentum
    >>> print(check_optimizer(Momentum(0.1, 0.0), reference=SGD(0.1), steps=3))
    Momentum(learning_rate=0.1, momentum=0.0): passed
      Quadratic: goes with the reference, to a relative 1e-06; difference at step 1: 0, 2: 0, 3: 0
      SmallNetwork: goes with the reference, to a relative 1e-06; difference at step 1: 0, 2: 0, 3: 0
    """
    check_count("steps", steps, high=MOST_STEPS)
    check_rate("tolerance", tolerance, zero=True)
    if not isinstance(optimizer, Optimizer):
        raise ConfigurationError(f"optimizer is {optimizer!r}: it must be an Optimizer such as SGD(0.1)")
    for name, function in (("reference", reference), ("array", array)):
        if not callable(function) and not isinstance(function, Optimizer):
            raise ConfigurationError(
                f"{name} is {shown(function)}: it must be a function"
                + (", or an Optimizer" if name == "reference" else " such as np.array")
            )
    problems = check_items("problems", problems, "a sequence of problems")
    for problem in problems:
        check_kind("problems has", problem, ValidationProblem, "a Problem such as Quadratic()")
    deviations = []
    for problem in problems:
        if isinstance(reference, Optimizer):
            expected = trajectory(reference, problem, steps, np.array)
        else:
            expected = _way(reference, problem, steps)
        found = trajectory(optimizer, problem, steps, array)
        deviations.append(_deviation(type(problem).__name__, problem.start, found, expected, tolerance))
    report = ValidationReport(repr(optimizer), tuple(deviations))
    if not report.passed:
        raise ValidationError(str(report))
    return report


def _way(
    reference: Callable[[Vector, Callable[[Vector], Vector], int], Sequence[Vector]],
    problem: ValidationProblem,
    steps: int,
) -> list[Vector]:
    """The parameters after every step by a function of the user's own."""
    wanted = f"it must be a function (start, gradient, steps) that gives (n,) for each of {steps} steps"
    try:
        found = [np.array(x, np.float64) for x in reference(problem.start, problem.gradient, steps)]
    except D5Error:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"reference {shown(reference)} failed ({type(error).__name__}: {first_line(error)}): {wanted}"
        ) from error
    if len(found) != steps or any(x.shape != problem.start.shape for x in found):
        raise ConfigurationError(f"the reference gave {len(found)} parameters: {wanted}")
    return found


def _made(array: Make, values: Vector) -> Any:
    """The array that the user's own function makes of values (n,)."""
    try:
        made = array(values)
        fits = _numbers(made).shape == values.shape
    except D5Error:
        raise
    except Exception as error:
        raise ConfigurationError(
            f"array {shown(array)} failed ({type(error).__name__}: {first_line(error)}): it must make an "
            "array of NumPy's (n,), as np.array does"
        ) from error
    if not fits:
        raise ConfigurationError(
            f"array {shown(array)} gave {shown(made)}: it must make an array of NumPy's (n,)"
        )
    return made


def trajectory(optimizer: Optimizer, problem: ValidationProblem, steps: int, array: Make) -> list[Vector]:
    """The parameters after every step; raises `ValidationError` where the rule changes the gradient."""
    x = _made(array, problem.start)
    state, found = optimizer.state_for(x, problem.slots), []
    for step in range(1, steps + 1):
        optimizer.prepare(x, state)
        slope = array(problem.gradient(_numbers(x)))
        before = _numbers(slope)
        optimizer.step(x, slope, state)
        if not np.array_equal(_numbers(slope), before, equal_nan=True):
            raise ValidationError(f"{optimizer!r} changed the gradient at step {step}: it must stay as it is")
        found.append(_numbers(x))
    return found


def _deviation(
    name: str, start: Vector, found: Sequence[Vector], expected: Sequence[Vector], tolerance: float
) -> TrajectoryDeviation:
    apart = [one - other for one, other in zip(found, expected, strict=True)]
    norms = [float(np.linalg.norm(difference)) for difference in apart]
    moved = np.maximum.accumulate([float(np.linalg.norm(x - start)) for x in expected])
    relative = [_over(norm, float(way)) for norm, way in zip(norms, moved, strict=True)]
    worst = max(float(abs(difference).max()) for difference in apart)
    return TrajectoryDeviation(name, tuple(norms), tuple(relative), worst, tolerance)


def _over(norm: float, way: float) -> float:
    if way == 0:
        return 0.0 if norm == 0 else math.inf
    return norm / way


def _numbers(x: Any) -> Vector:
    """A float64 copy in host memory of an array of any framework."""
    if hasattr(x, "detach"):  # PyTorch
        return np.array(x.detach().cpu().double().numpy())
    if hasattr(x, "get"):  # CuPy
        return np.array(x.get(), np.float64)
    return np.array(x, np.float64)


# -- whole trainings ---------------------------------------------------------------------------------------


def check_training(
    curve: Mapping[int, float] | Sequence[float],
    expected: Mapping[int, float] | Sequence[float],
    tolerance: float,
) -> float:
    """Check that a learning curve equals the expected one within a tolerance; returns the largest difference.

    Curves are values by epoch or step: a dictionary, or a sequence from 0 on. The times of `expected` are
    compared, and all of them must exist. Raises `ValidationError`, which names the times that differ.

    >>> check_training([0.9, 0.5, 0.32], {0: 0.9, 2: 0.3}, tolerance=0.05)
    0.02
    """
    check_rate("tolerance", tolerance, zero=True)
    found, wanted = _curve("curve", curve), _curve("expected", expected)
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        raise ValidationError(
            f"the curve has {len(found)} values and none at {', '.join(map(str, missing[:SHOWN]))}, where "
            "one is expected: train as long as the curve that it is compared with"
        )
    apart = {time: abs(found[time] - wanted[time]) for time in sorted(wanted)}
    wrong = [time for time, difference in apart.items() if not difference <= tolerance]
    if wrong:
        lines = [f"{time}: {found[time]:.6g} instead of {wanted[time]:.6g}" for time in wrong[:SHOWN]]
        more = f", and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        raise ValidationError(
            f"{len(wrong)} of {len(apart)} values are off by more than {tolerance:g}: "
            f"{'; '.join(lines)}{more}"
        )
    return round(max(apart.values()), 12)


def _curve(name: str, values: Mapping[int, float] | Sequence[float]) -> dict[int, float]:
    wanted = "a dictionary of values by epoch or step, or a list of values"
    curve = values if isinstance(values, Mapping) else dict(enumerate(check_items(name, values, wanted)))
    for time, value in curve.items():
        check_kind(f"{name} at {shown(time)}", value, float | int | np.number, "a number")
    if not curve:
        raise ConfigurationError(f"{name} is empty: give at least one value by epoch or step")
    return {time: float(value) for time, value in curve.items()}
