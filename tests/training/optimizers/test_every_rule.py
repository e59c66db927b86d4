"""One table of every update rule, the kinds of arrays, and what all rules or those of a family share"""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.validation.problems import Quadratic

Vector = np.ndarray[Any, Any]
QUADRATIC = Quadratic()
SLOTS, SIZE = QUADRATIC.slots, len(QUADRATIC.start)
C = 4.0  # by which gradients are scaled: products and roots of it are exact


RULES: dict[str, Optimizer] = {
    "SGD": d5.optimizers.SGD(0.1), "Momentum": d5.optimizers.Momentum(0.1, 0.8),
    "Nesterov": d5.optimizers.Nesterov(0.1, 0.8), "AdaGrad": d5.optimizers.AdaGrad(0.1),
    "RMSProp": d5.optimizers.RMSProp(), "Adam": d5.optimizers.Adam(0.01),
    "AdamW": d5.optimizers.AdamW(0.01, weight_decay=0.1), "AMSGrad": d5.optimizers.AMSGrad(0.01),
    "NAdam": d5.optimizers.NAdam(0.01), "AdaMax": d5.optimizers.AdaMax(0.01),
    "Lion": d5.optimizers.Lion(0.01, weight_decay=0.1), "Adafactor": d5.optimizers.Adafactor(0.1),
    "LARS": d5.optimizers.LARS(0.1, trust=0.1), "LAMB": d5.optimizers.LAMB(0.01),
    "Muon": d5.optimizers.Muon(0.02), "Shampoo": d5.optimizers.Shampoo(0.1),
    "AcceleGrad": d5.optimizers.AcceleGrad(1.0, 5.0), "LBFGS": d5.optimizers.LBFGS(0.5),
    "WeightDecay": d5.optimizers.WeightDecay(d5.optimizers.SGD(0.1), 0.1),
    "ClipNorm": d5.optimizers.ClipNorm(d5.optimizers.SGD(0.1), 0.5),
    "ClipValue": d5.optimizers.ClipValue(d5.optimizers.SGD(0.1), 0.2),
    "Scheduled": d5.optimizers.Scheduled(
        d5.optimizers.Momentum(0.1), learning_rate=d5.schedules.Cosine(0.1, 200, unit="step")
    ),
    "TorchOptimizer, flat": d5.optimizers.TorchOptimizer("RAdam", lr=0.1),
    "TorchOptimizer, by tensor": d5.optimizers.TorchOptimizer("Adafactor", lr=0.1),
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
    rule, tolerance = RULES[name], RELATIVE.get(kind, 1e-9)
    d5.optimizers.check_optimizer(rule, reference=rule, array=KINDS[kind], tolerance=tolerance, steps=20)


BFLOAT16 = (
    "SGD", "Momentum", "Nesterov", "AdaGrad", "RMSProp", "Adam", "AMSGrad", "AdaMax", "Lion", "LAMB", "Muon",
)  # fmt: skip


@pytest.mark.parametrize("name", BFLOAT16)
def test_it_descends_in_bfloat16(name: str) -> None:
    """The parameters and what is remembered keep the type; down to 60 % of the first value."""
    rule, x = RULES[name], torch.tensor(QUADRATIC.start, dtype=torch.bfloat16)
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


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.elementwise])
def test_what_an_elementwise_rule_remembers_is_like_the_parameters(name: str) -> None:
    """Arrays of their shape, type and framework, and numbers; nothing else."""
    for make in (KINDS["numpy float32"], KINDS["torch float64"]):
        x = make(QUADRATIC.start)
        state = RULES[name].state(x)
        RULES[name].step(x, make(QUADRATIC.gradient(QUADRATIC.start)), state)
        for value in state.values():
            like = type(value) is type(x) and (value.shape, value.dtype) == (x.shape, x.dtype)
            assert like or isinstance(value, (int, float))


def pickled(state: Any) -> Any:
    return pickle.loads(pickle.dumps(state))


@pytest.mark.parametrize("again", [copy.deepcopy, pickled])
@pytest.mark.parametrize("kind", ["numpy float32", "torch float32"])
@every_rule
def test_it_goes_on_from_its_state(name: str, kind: str, again: Callable[[Any], Any]) -> None:
    """Twelve steps, and the last seven with copies of parameters and state: the same bits, which repeat."""
    rule, make = RULES[name], KINDS[kind]
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
