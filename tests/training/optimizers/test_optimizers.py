"""Claims about the level-2 optimizers, on NumPy and PyTorch arrays, against torch.optim and closed forms."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.checks import check_number
from d5ray.errors import ConfigurationError
from d5ray.training.optimizers.gradient_descent import SGD, Momentum, Nesterov
from d5ray.training.optimizers.optimizer import Optimizer

PEERS: list[tuple[Optimizer, Callable[[torch.Tensor], torch.optim.Optimizer]]] = [
    (SGD(0.03), lambda x: torch.optim.SGD([x], lr=0.03)),
    (Momentum(0.03), lambda x: torch.optim.SGD([x], lr=0.03, momentum=0.9)),
    (Momentum(0.01, 0.5), lambda x: torch.optim.SGD([x], lr=0.01, momentum=0.5)),
    (Momentum(0.02, 0.0), lambda x: torch.optim.SGD([x], lr=0.02)),
    (Nesterov(0.03), lambda x: torch.optim.SGD([x], lr=0.03, momentum=0.9, nesterov=True)),
    (Nesterov(0.01, 0.5), lambda x: torch.optim.SGD([x], lr=0.01, momentum=0.5, nesterov=True)),
    (Nesterov(0.02, 0.0), lambda x: torch.optim.SGD([x], lr=0.02)),
]


def array_of(values: Any, kind: str) -> Any:
    array = np.array(values, dtype=np.float64)
    return torch.from_numpy(array) if kind == "torch" else array


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(("rule", "peer"), PEERS, ids=[repr(rule) for rule, _ in PEERS])
def test_updates_are_those_of_torch_optim(
    rule: Optimizer, peer: Callable[[torch.Tensor], torch.optim.Optimizer], kind: str
) -> None:
    """Twenty steps with different gradients, float64: the parameters agree to the last bits after each."""
    generator = np.random.default_rng(3)
    start = generator.standard_normal(50)
    x, reference = array_of(start, kind), torch.tensor(start)
    state, other = rule.state(x), peer(reference)
    for _ in range(20):
        gradient = generator.standard_normal(50)
        given = array_of(gradient, kind)
        rule.update(x, given, state)
        reference.grad = torch.tensor(gradient)
        other.step()
        np.testing.assert_allclose(np.asarray(x), reference.numpy(), rtol=1e-14, atol=1e-15)
        np.testing.assert_array_equal(np.asarray(given), gradient)  # the gradient is only read


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_sgd_on_a_quadratic_is_its_closed_form(kind: str) -> None:
    """f(x) = a x²/2: x_t = (1 − η a)^t x_0."""
    rates, start = np.array([0.5, 1.0, 4.0, 19.0]), np.array([1.0, -2.0, 3.0, -4.0])
    x, curvature = array_of(start, kind), array_of(rates, kind)
    rule = SGD(0.1)
    for _ in range(30):
        rule.update(x, curvature * x, rule.state(x))
    np.testing.assert_allclose(np.asarray(x), (1 - 0.1 * rates) ** 30 * start, rtol=1e-12)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_momentum_on_a_quadratic_is_its_closed_form(kind: str) -> None:
    """(v, x) ← [[μ, a], [−ημ, 1 − ηa]] (v, x): thirty steps are the matrix' thirtieth power."""
    rate, momentum, curvature, start = 0.05, 0.9, 3.0, 2.0
    x = array_of([start], kind)
    rule = Momentum(rate, momentum)
    state = rule.state(x)
    for _ in range(30):
        rule.update(x, curvature * x, state)
    matrix = np.array([[momentum, curvature], [-rate * momentum, 1 - rate * curvature]])
    expected = np.linalg.matrix_power(matrix, 30) @ [0.0, start]
    assert float(state["velocity"][0]) == pytest.approx(expected[0], rel=1e-12)
    assert float(x[0]) == pytest.approx(expected[1], rel=1e-12)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_nesterov_looks_ahead(kind: str) -> None:
    """x is x̃ + μ ṽ of Nesterov's recursion ṽ ← μ ṽ − η ∇f(x̃ + μ ṽ), x̃ ← x̃ + ṽ; f(x) = a x²/2."""
    rate, momentum, curvature = 0.05, 0.9, np.array([0.5, 3.0, 10.0])
    x = array_of([2.0, -1.0, 0.5], kind)
    rule = Nesterov(rate, momentum)
    state = rule.state(x)
    behind, speed = np.array([2.0, -1.0, 0.5]), np.zeros(3)  # x̃ and ṽ; x is x̃ + μ ṽ
    for _ in range(50):
        rule.update(x, array_of(curvature, kind) * x, state)
        speed = momentum * speed - rate * curvature * (behind + momentum * speed)
        behind = behind + speed
        np.testing.assert_allclose(np.asarray(x), behind + momentum * speed, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_an_update_is_in_place(kind: str) -> None:
    """A view of the parameters sees the step; type and shape stay."""
    whole = array_of(np.ones(10), kind)
    view = whole[2:4]
    for rule in (SGD(0.5), Momentum(0.5), Nesterov(0.5, 0.5)):
        rule.update(whole, array_of(np.full(10, 1.0), kind), rule.state(whole))
    assert np.asarray(view).tolist() == [-0.75, -0.75]


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_state_has_the_type_of_the_parameters(kind: str, dtype: str) -> None:
    """Velocity: zeros like the parameters, of the same framework; SGD remembers nothing."""
    x: Any = np.ones(7, dtype=dtype)
    x = torch.from_numpy(x) if kind == "torch" else x
    for rule in (Momentum(0.1), Nesterov(0.1)):
        velocity = rule.state(x)["velocity"]
        assert type(velocity) is type(x)
        assert (velocity.dtype, tuple(velocity.shape)) == (x.dtype, (7,))
        assert np.asarray(velocity).tolist() == [0.0] * 7
    assert SGD(0.1).state(x) == {}


def test_runs_do_not_share_their_state() -> None:
    """One rule drives two parameters alternately; each goes as if it were alone."""
    rule = Momentum(0.1, 0.9)
    generator = np.random.default_rng(1)
    gradients = generator.standard_normal((20, 5))

    def alone(scale: float) -> np.ndarray[Any, Any]:
        x = np.zeros(5)
        state = rule.state(x)
        for gradient in gradients:
            rule.update(x, scale * gradient, state)
        return x

    first, second = np.zeros(5), np.zeros(5)
    states = rule.state(first), rule.state(second)
    for gradient in gradients:
        rule.update(first, gradient, states[0])
        rule.update(second, -3 * gradient, states[1])
    np.testing.assert_array_equal(first, alone(1.0))
    np.testing.assert_array_equal(second, alone(-3.0))
    assert rule == Momentum(0.1, 0.9)


WRONG = [0, 0.0, -0.1, math.nan, math.inf, -math.inf, "0.1", True, None, (0.1,), 0.1 + 0j, 10**400]


@pytest.mark.parametrize("value", WRONG, ids=repr)
@pytest.mark.parametrize("rule", [SGD, Momentum, Nesterov])
def test_a_wrong_learning_rate_is_refused(rule: Callable[[Any], Optimizer], value: object) -> None:
    """The error names the argument and what was found, and says what a learning rate must be."""
    with pytest.raises(ConfigurationError) as caught:
        rule(value)
    shown = repr(value) if len(repr(value)) < 200 else f"{repr(value)[:200]}… ({len(repr(value))} characters)"
    assert str(caught.value) == f"learning_rate is {shown}: it must be a number greater than 0"


@pytest.mark.parametrize("value", [-0.1, 1.0, 1, 1.5, math.nan, math.inf, "0.9", True, None], ids=repr)
@pytest.mark.parametrize("rule", [Momentum, Nesterov])
def test_a_wrong_momentum_is_refused(rule: Callable[[float, Any], Optimizer], value: Any) -> None:
    """Momentum lies in [0, 1)."""
    with pytest.raises(ConfigurationError) as caught:
        rule(0.1, value)
    assert str(caught.value) == f"momentum is {value!r}: it must be a number from 0 up to, but not, 1"


@pytest.mark.parametrize(
    ("low", "low_included", "high", "good", "bad", "bounds"),
    [
        (0.0, False, math.inf, (1e-300, 5, 1e300), (0, -1), "greater than 0"),
        (0.0, True, math.inf, (0, 0.0, 7), (-1e-9,), "from 0 up"),
        (0.0, True, 1.0, (0, 0.999), (1, 1.0), "from 0 up to, but not, 1"),
        (2.0, False, 3.0, (2.5,), (2.0, 3.0), "greater than 2 and smaller than 3"),
    ],
)
def test_check_number_keeps_its_bounds(
    low: float,
    low_included: bool,
    high: float,
    good: tuple[float, ...],
    bad: tuple[float, ...],
    bounds: str,
) -> None:
    """Values inside pass, values outside raise with the bounds in words."""
    for value in good:
        check_number("x", value, low=low, low_included=low_included, high=high)
    for value in bad:
        with pytest.raises(ConfigurationError, match=f"it must be a number {bounds}$"):
            check_number("x", value, low=low, low_included=low_included, high=high)


@pytest.mark.parametrize(
    "rule",
    [
        d5.optimizers.Momentum(0.1, 0.9),
        d5.optimizers.ClipNorm(d5.optimizers.Adam(0.01), 1.0),
        d5.optimizers.Scheduled(
            d5.optimizers.SGD(1.0), learning_rate=d5.schedules.Cosine(0.1, 9, unit="step")
        ),
        d5.optimizers.Scheduled(
            d5.optimizers.Momentum(0.1, 0.9), momentum=d5.schedules.Piecewise(0.5, {1: 0.9})
        ),
        d5.optimizers.WeightDecay(
            d5.optimizers.Scheduled(d5.optimizers.SGD(1.0), learning_rate=d5.schedules.WarmUp(0.1, 3)), 0.1
        ),
    ],
    ids=repr,
)
def test_a_scaled_rule_has_that_many_times_the_rate_at_every_step(rule: d5.Optimizer) -> None:
    """Also by a schedule, whose unit and epochs stay; a state of the one goes on with the other."""
    timed = rule.timed(4)
    scaled = timed.scaled(0.25)
    for step in range(12):
        assert scaled.at(step).learning_rate == pytest.approx(0.25 * timed.at(step).learning_rate, rel=1e-12)
    x, state = np.ones(3), timed.state(np.ones(3))
    for each in (timed, scaled):
        each.step(x, np.ones(3), state)
    assert scaled.schedules or not rule.schedules
