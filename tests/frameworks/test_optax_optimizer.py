"""Claims about Optax's optimizers in d5ray: they are optax's, also when copied and read back"""

import copy
import functools
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.checkpoints.state import pack, unpack_into
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.slots import Slot, by_name

pytest.importorskip("jax", reason="JAX is not installed")
import jax
import optax

Array = np.ndarray[Any, Any]
SLOTS = (Slot("matrix", 0, (4, 3)), Slot("bias", 12, (3,)))
START = np.random.default_rng(1).standard_normal(15)
GRADIENTS = np.random.default_rng(2).standard_normal((6, 15))
OptaxOptimizer = d5.optimizers.OptaxOptimizer


def clipped(learning_rate: float) -> Any:
    """A chain of one's own, which sees all tensors."""
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate))


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    "adamw": ("adamw", {"learning_rate": 0.01, "weight_decay": 0.1}),
    "rmsprop": (optax.rmsprop, {"learning_rate": 0.01}),
    "lion": ("lion", {"learning_rate": 0.01}),
    "lamb": ("lamb", {"learning_rate": 0.01}),
    "a chain": (clipped, {"learning_rate": 0.1}),
}


def native(rule: Any, rates: list[float] | None = None, **settings: Any) -> list[Array]:
    """What Optax does to a dictionary of arrays in float64, as flat parameters after each step."""
    function = getattr(optax, rule) if isinstance(rule, str) else rule
    found = []
    with jax.enable_x64(True):
        values = by_name(START.copy(), SLOTS)
        state = function(**settings).init(values)
        for step, gradient in enumerate(GRADIENTS):
            own = settings if rates is None else {**settings, "learning_rate": rates[step]}
            moves, state = function(**own).update(by_name(gradient, SLOTS), state, values)
            values = optax.apply_updates(values, moves)
            found.append(np.concatenate([np.asarray(values[slot.name]).ravel() for slot in SLOTS]))
    return found


def walk(rule: Any, kind: str = "numpy", between: Any = None) -> list[Array]:
    x: Any = torch.tensor(START) if kind == "torch" else START.copy()
    state, found = rule.state_for(x, SLOTS), []
    for step, gradient in enumerate(GRADIENTS):
        if between and step % 3 == 2:
            x, state = between(rule, x, state)
        rule.step(x, torch.tensor(gradient) if kind == "torch" else gradient.copy(), state)
        found.append(np.asarray(x).copy())
    return found


@pytest.mark.parametrize(
    "name",
    [name if name in ("sgd", "a chain") else pytest.param(name, marks=pytest.mark.full) for name in CASES],
)
def test_it_is_optax(name: str) -> None:
    """Six steps in float64 of arrays of NumPy and PyTorch, by element and by tensor."""
    rule, settings = CASES[name]
    own = OptaxOptimizer(rule, **settings)
    assert own.tensorwise == (name in ("lamb", "a chain"))
    for kind in ("numpy", "torch"):
        np.testing.assert_allclose(walk(own, kind), native(rule, **settings), rtol=1e-12, atol=1e-14)


def test_its_rate_follows_a_schedule() -> None:
    """Optax with the rates of each step, and momentum from before."""
    rates = [0.1, 0.1, 0.02, 0.02, 0.5, 0.5]
    rule = OptaxOptimizer("sgd", learning_rate=0.1, momentum=0.9)
    x, found = START.copy(), []
    state = rule.state_for(x, SLOTS)
    for rate, gradient in zip(rates, GRADIENTS, strict=True):
        rule.with_values(learning_rate=rate).step(x, gradient.copy(), state)
        found.append(x.copy())
    wanted = native("sgd", rates, learning_rate=0.1, momentum=0.9)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert rule.learning_rate == 0.1 and "momentum" in rule.hyperparameters


@pytest.mark.parametrize("name", ["adamw", "a chain"])
def test_its_state_can_be_copied_and_read_back(name: str) -> None:
    """A copy, and what a checkpoint writes, go on as the first would have."""
    rule, settings = CASES[name]

    def copied(_: Any, x: Any, state: Any) -> Any:
        return x.copy(), copy.deepcopy(state)

    def checkpointed(own: Any, x: Any, state: Any) -> Any:
        packed = pack(SimpleNamespace(state=state), "optimizer")
        data = json.loads(json.dumps(packed.data))
        arrays = {name: array.copy() for name, array in packed.arrays.items()}
        fresh = SimpleNamespace(state=own.state_for(x.copy(), SLOTS))
        unpack_into(fresh, Packed(data, arrays), x, "optimizer")
        return x, fresh.state

    plain = walk(OptaxOptimizer(rule, **settings))
    for between in (copied, checkpointed):
        np.testing.assert_array_equal(walk(OptaxOptimizer(rule, **settings), between=between), plain)


def test_a_partial_of_optax_is_taken_and_what_has_no_settings_is_not() -> None:
    """The forms in which an experiment takes one, and the errors that name what works."""

    def given(optimizer: Any) -> Any:
        return d5.Experiment("mlp", "digits", optimizer, agents=2).optimizer

    partial = given(functools.partial(optax.adamw, learning_rate=0.002))
    assert partial == OptaxOptimizer(optax.adamw, learning_rate=0.002)
    for wrong, words in (
        (lambda: given(optax.adam(0.1)), "functools.partial.optax.adamw, learning_rate=0.001"),
        (lambda: given(functools.partial(optax.adam, 0.1)), "partial.optax.adamw, learning_rate=0.001"),
        (lambda: given(optax.adam), "cannot be made: .*learning_rate"),
        (lambda: OptaxOptimizer("adamm", learning_rate=0.1), "did you mean 'adam'"),
        (lambda: OptaxOptimizer("adam", lr=0.1), "cannot be made: .*lr"),
        (lambda: OptaxOptimizer("lbfgs", learning_rate=0.1), "cannot do a step"),
        (lambda: OptaxOptimizer(np.zeros, shape=3), "is no optimizer"),
        (lambda: OptaxOptimizer("adam", learning_rate=optax.constant_schedule(0.1)), "Scheduled"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            wrong()
