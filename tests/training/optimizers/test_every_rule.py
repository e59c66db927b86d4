"""One table of every update rule, the kinds of arrays, and what all rules or those of a family share"""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.validation.problems import PROBLEMS, Quadratic
from d5ray.training.validation.validation import trajectory

Vector = np.ndarray[Any, Any]
QUADRATIC = Quadratic()
SLOTS, SIZE = QUADRATIC.slots, len(QUADRATIC.start)
C = 4.0  # by which gradients are scaled: products and roots of it are exact


@dataclasses.dataclass(frozen=True)
class Row:
    """A rule; torch.optim's own for it; and the rule that goes the same way with C times the gradients."""

    rule: Optimizer
    peer: d5.optimizers.TorchOptimizer | None = None
    scaled: Optimizer | None = None


def native(name: str, **settings: Any) -> d5.optimizers.TorchOptimizer:
    return d5.optimizers.TorchOptimizer(name, **settings)


RULES = {
    "SGD": Row(d5.optimizers.SGD(0.1), native("SGD", lr=0.1), d5.optimizers.SGD(0.1 / C)),
    "Momentum": Row(
        d5.optimizers.Momentum(0.1, 0.8), native("SGD", lr=0.1, momentum=0.8),
        d5.optimizers.Momentum(0.1 / C, 0.8)
    ),
    "Nesterov": Row(
        d5.optimizers.Nesterov(0.1, 0.8), native("SGD", lr=0.1, momentum=0.8, nesterov=True),
        d5.optimizers.Nesterov(0.1 / C, 0.8)
    ),
    "AdaGrad": Row(
        d5.optimizers.AdaGrad(0.1), native("Adagrad", lr=0.1), d5.optimizers.AdaGrad(0.1, C * 1e-10)
    ),
    "RMSProp": Row(
        d5.optimizers.RMSProp(), native("RMSprop", lr=0.01), d5.optimizers.RMSProp(epsilon=C * 1e-8)
    ),
    "Adam": Row(
        d5.optimizers.Adam(0.01), native("Adam", lr=0.01), d5.optimizers.Adam(0.01, epsilon=C * 1e-8)
    ),
    "AdamW": Row(
        d5.optimizers.AdamW(0.01, weight_decay=0.1),
        native("AdamW", lr=0.01, weight_decay=0.1),
        d5.optimizers.AdamW(0.01, epsilon=C * 1e-8, weight_decay=0.1),
    ),
    "AMSGrad": Row(
        d5.optimizers.AMSGrad(0.01), native("Adam", lr=0.01, amsgrad=True),
        d5.optimizers.AMSGrad(0.01, epsilon=C * 1e-8)
    ),
    "NAdam": Row(
        d5.optimizers.NAdam(0.01), native("NAdam", lr=0.01), d5.optimizers.NAdam(0.01, epsilon=C * 1e-8)
    ),
    "AdaMax": Row(
        d5.optimizers.AdaMax(0.01), native("Adamax", lr=0.01), d5.optimizers.AdaMax(0.01, epsilon=C * 1e-8)
    ),
    "Lion": Row(d5.optimizers.Lion(0.01, weight_decay=0.1), None, d5.optimizers.Lion(0.01, weight_decay=0.1)),
    "Adafactor": Row(d5.optimizers.Adafactor(0.1), native("Adafactor", lr=0.1), d5.optimizers.Adafactor(0.1)),
    "LARS": Row(d5.optimizers.LARS(0.1, trust=0.1)),
    "LAMB": Row(d5.optimizers.LAMB(0.01), None, d5.optimizers.LAMB(0.01, epsilon=C * 1e-6)),
    "Muon": Row(d5.optimizers.Muon(0.02)),
    "Shampoo": Row(d5.optimizers.Shampoo(0.1)),
    "AcceleGrad": Row(d5.optimizers.AcceleGrad(1.0, 5.0), None, d5.optimizers.AcceleGrad(1.0, 5.0, C)),
    "LBFGS": Row(
        d5.optimizers.LBFGS(0.5), native("LBFGS", lr=0.5, max_iter=1, history_size=10),
        d5.optimizers.LBFGS(0.5)
    ),
    "WeightDecay": Row(
        d5.optimizers.WeightDecay(d5.optimizers.SGD(0.1), 0.1), native("SGD", lr=0.1, weight_decay=0.1)
    ),
    "ClipNorm": Row(d5.optimizers.ClipNorm(d5.optimizers.SGD(0.1), 0.5)),
    "ClipValue": Row(d5.optimizers.ClipValue(d5.optimizers.SGD(0.1), 0.2)),
    "Scheduled": Row(
        d5.optimizers.Scheduled(
            d5.optimizers.Momentum(0.1), learning_rate=d5.schedules.Cosine(0.1, 200, unit="step")
        )
    ),
    "TorchOptimizer, flat": Row(native("RAdam", lr=0.1)),
    "TorchOptimizer, by tensor": Row(native("Adafactor", lr=0.1)),
}  # fmt: skip


def cupy_array(values: Vector) -> Any:
    cupy = pytest.importorskip("cupy")
    try:
        return cupy.array(values)
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("no GPU")


KINDS: dict[str, Callable[[Vector], Any]] = {
    "numpy float64": np.array,
    "numpy float32": lambda values: np.array(values, np.float32),
    "torch float64": torch.tensor,
    "torch float32": lambda values: torch.tensor(values, dtype=torch.float32),
    "cupy float64": cupy_array,
}
RELATIVE = {"numpy float32": 2e-4, "torch float32": 2e-4}  # else 1e-9
every_rule = pytest.mark.parametrize("name", RULES)
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@every_rule
def test_it_goes_the_same_way_on_all_kinds_of_arrays(name: str, kind: str) -> None:
    """Against itself in NumPy's float64, on a quadratic and a network; the gradient stays as it is."""
    rule, tolerance = RULES[name].rule, RELATIVE.get(kind, 1e-9)
    d5.optimizers.check_optimizer(rule, reference=rule, array=KINDS[kind], tolerance=tolerance, steps=20)


@every_rule
def test_it_descends(name: str) -> None:
    """The value after 150 steps: under half of the first on the quadratic, under the first on the network."""
    for problem, share in zip(PROBLEMS, (0.5, 0.95), strict=True):
        end = trajectory(RULES[name].rule, problem, 150, np.array)[-1]
        assert problem.value(end) < share * problem.value(problem.start)


BFLOAT16 = (
    "SGD", "Momentum", "Nesterov", "AdaGrad", "RMSProp", "Adam", "AMSGrad", "AdaMax", "Lion", "LAMB", "Muon",
)  # fmt: skip


@pytest.mark.parametrize("name", BFLOAT16)
def test_it_descends_in_bfloat16(name: str) -> None:
    """The parameters and what is remembered keep the type; down to 60 % of the first value."""
    rule, x = RULES[name].rule, torch.tensor(QUADRATIC.start, dtype=torch.bfloat16)
    state = rule.state_for(x, SLOTS)
    for _ in range(150):
        rule.step(x, torch.tensor(QUADRATIC.gradient(x.double().numpy())).bfloat16(), state)
    assert {array.dtype for array in arrays_of(state)} <= {torch.bfloat16} and x.dtype == torch.bfloat16
    assert QUADRATIC.value(x.double().numpy()) < 0.6 * QUADRATIC.value(QUADRATIC.start)


def arrays_of(state: Any) -> list[Any]:
    if isinstance(state, dict):
        return [array for value in state.values() for array in arrays_of(value)]
    if isinstance(state, (list, tuple)):
        return [array for value in state for array in arrays_of(value)]
    return [state] if hasattr(state, "dtype") else []


@pytest.mark.parametrize("name", [name for name, row in RULES.items() if row.rule.elementwise])
def test_what_an_elementwise_rule_remembers_is_like_the_parameters(name: str) -> None:
    """Arrays of their shape, type and framework, and numbers; nothing else."""
    for make in (KINDS["numpy float32"], KINDS["torch float64"]):
        x = make(QUADRATIC.start)
        state = RULES[name].rule.state(x)
        RULES[name].rule.step(x, make(QUADRATIC.gradient(QUADRATIC.start)), state)
        for value in state.values():
            like = type(value) is type(x) and (value.shape, value.dtype) == (x.shape, x.dtype)
            assert like or isinstance(value, (int, float))


@pytest.mark.parametrize("name", [name for name, row in RULES.items() if row.rule.elementwise])
def test_an_elementwise_rule_does_not_care_for_order(name: str) -> None:
    """Coordinates in another order give the trajectory in that order."""
    rule, order = RULES[name].rule, np.random.default_rng(3).permutation(SIZE)
    x, y = QUADRATIC.start, QUADRATIC.start[order]
    states = rule.state(x), rule.state(y)
    for _ in range(20):
        slope = QUADRATIC.gradient(x)
        rule.step(x, slope, states[0])
        rule.step(y, slope[order], states[1])
        np.testing.assert_allclose(y, x[order], rtol=1e-14)


def pickled(state: Any) -> Any:
    return pickle.loads(pickle.dumps(state))


@pytest.mark.parametrize("again", [copy.deepcopy, pickled])
@pytest.mark.parametrize("kind", ["numpy float32", "torch float32"])
@every_rule
def test_it_goes_on_from_its_state(name: str, kind: str, again: Callable[[Any], Any]) -> None:
    """Twelve steps, and the last seven with copies of parameters and state: the same bits, which repeat."""
    rule, make = RULES[name].rule, KINDS[kind]
    gradients = np.random.default_rng(4).standard_normal((12, SIZE))
    ends = []
    for copied in (False, False, True):
        x = make(QUADRATIC.start)
        state = rule.state_for(x, SLOTS)
        for step, gradient in enumerate(gradients):
            if copied and step == 5:
                x, state = again((x, state))
            rule.step(x, make(gradient), state)
        ends.append(np.asarray(x).copy())
    np.testing.assert_array_equal(ends[0], ends[1])
    np.testing.assert_array_equal(ends[0], ends[2])


def walked(rule: Optimizer, start: Vector, gradients: Vector) -> list[Vector]:
    x = start.copy()
    state, found = rule.state_for(x, SLOTS), []
    for gradient in gradients:
        rule.step(x, gradient.copy(), state)
        found.append(x.copy())
    return found


GRADIENTS = np.random.default_rng(9).standard_normal((20, SIZE))


@every_rule
def test_the_mirror_image_goes_the_mirrored_way(name: str) -> None:
    """Parameters and gradients of the other sign: every rule is odd."""
    one = walked(RULES[name].rule, QUADRATIC.start, GRADIENTS)
    other = walked(RULES[name].rule, -QUADRATIC.start, -GRADIENTS)
    np.testing.assert_allclose(np.array(other), -np.array(one), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", [name for name, row in RULES.items() if row.scaled is not None])
def test_gradients_of_another_scale_go_the_same_way(name: str) -> None:
    """Four times the gradients: a quarter of the rate, or four times ε, or nothing at all to change."""
    rule, scaled = RULES[name].rule, RULES[name].scaled
    assert scaled is not None
    one, other = walked(rule, QUADRATIC.start, GRADIENTS), walked(scaled, QUADRATIC.start, C * GRADIENTS)
    np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-14)
    if scaled != rule:
        assert not np.allclose(walked(rule, QUADRATIC.start, C * GRADIENTS), one, rtol=1e-12, atol=1e-14)
