"""Claims about Keras's own optimizers in d5ray: they are keras.optimizers, also when copied and read back"""

import copy
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.checkpoints.state import pack, unpack_into
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.slots import Slot
from d5ray.recipes.engine.parsing import settings
from d5ray.training.optimizers.optimizer import Optimizer

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

Array = np.ndarray[Any, Any]
SLOTS = (Slot("matrix", 0, (4, 3)), Slot("bias", 12, (3,)))
SIZE = 15
START = np.random.default_rng(1).standard_normal(SIZE).astype(np.float32)
GRADIENTS = np.random.default_rng(2).standard_normal((6, SIZE)).astype(np.float32)
CASES: dict[str, dict[str, Any]] = {
    "SGD": {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
    "Adam": {"learning_rate": 0.01, "amsgrad": True},
    "AdamW": {"learning_rate": 0.01, "weight_decay": 0.1},
    "Adagrad": {"learning_rate": 0.1},
    "Adadelta": {"learning_rate": 0.5},
    "Adamax": {},
    "Nadam": {"learning_rate": 0.01},
    "RMSprop": {"learning_rate": 0.01, "centered": True},
    "Lion": {"learning_rate": 0.01},
    "Ftrl": {"learning_rate": 0.1},
    "Adafactor": {"learning_rate": 0.1},
    "Lamb": {"learning_rate": 0.01},
}


def views(flat: Any) -> list[Any]:
    return [flat[slot.offset : slot.offset + slot.size].reshape(slot.shape) for slot in SLOTS]


def native(name: str, rates: list[float] | None = None, **values: Any) -> list[Array]:
    """What Keras does to variables, call by call, as flat parameters after each step."""
    variables = [tf.Variable(view) for view in views(START)]
    optimizer = getattr(tf.keras.optimizers, name)(**values)
    found = []
    for step, gradient in enumerate(GRADIENTS):
        if rates is not None:
            optimizer.learning_rate = rates[step]
        optimizer.apply_gradients(zip(map(tf.constant, views(gradient)), variables, strict=True))
        found.append(np.concatenate([variable.numpy().ravel() for variable in variables]))
    return found


Change = Callable[[Any, Any], tuple[Any, Any]]


def walk(rule: Optimizer, kind: str = "numpy", between: Change | None = None) -> list[Array]:
    x: Any = torch.tensor(START) if kind == "torch" else START.copy()
    state, found = rule.state_for(x, SLOTS), []
    for step, gradient in enumerate(GRADIENTS):
        if between and step % 3 == 2:
            x, state = between(x, state)
        given: Any = torch.tensor(gradient) if kind == "torch" else gradient.copy()
        rule.step(x, given, state)
        np.testing.assert_array_equal(np.asarray(given), gradient)
        found.append(np.asarray(x).copy())
    return found


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_it_is_keras_optimizers(name: str, kind: str) -> None:
    """Six steps in float32, on arrays of both; a graph may round otherwise than single calls."""
    found = walk(d5.optimizers.KerasOptimizer(name, **CASES[name]), kind)
    np.testing.assert_allclose(found, native(name, **CASES[name]), rtol=2e-5, atol=1e-6)
    assert not np.array_equal(found[0], START)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (d5.optimizers.SGD(0.1), ("SGD", {"learning_rate": 0.1})),
        (d5.optimizers.AdaMax(0.01, 0.9, 0.999, 1e-7), ("Adamax", {"learning_rate": 0.01})),
    ],
    ids=["SGD", "AdaMax"],
)
def test_the_same_formula_gives_the_same(one: Optimizer, other: tuple[str, dict[str, Any]]) -> None:
    """Where Keras has a rule of d5ray's."""
    found = walk(d5.optimizers.KerasOptimizer(other[0], **other[1]))
    np.testing.assert_allclose(found, walk(one), rtol=1e-4, atol=1e-6)


def copied(x: Any, state: Any) -> tuple[Any, Any]:
    """To other memory, with a deep copy of the state."""
    return copy.deepcopy(x), copy.deepcopy(state)


class Holder:
    """What has a state, and is checkpointed."""

    def __init__(self, state: Any) -> None:
        self.state = state


def checkpointed(x: Any, state: Any) -> tuple[Any, Any]:
    """Packed as a checkpoint is, and unpacked into a state that was made anew for other memory."""
    packed = pack(Holder(state), "optimizer")
    data = json.loads(json.dumps(packed.data))
    arrays = {name: array.copy() for name, array in packed.arrays.items()}
    other = copy.deepcopy(x)
    fresh = Holder(state["engine"].rule.state_for(other, SLOTS))
    unpack_into(fresh, Packed(data, arrays), other, "optimizer")
    return other, fresh.state


@pytest.mark.full
@pytest.mark.parametrize("between", [copied, checkpointed])
@pytest.mark.parametrize("name", ["SGD", "Adam", "Adafactor"])
def test_its_state_can_be_copied_and_read_back(name: str, between: Change) -> None:
    """Each time into a state without an engine: the same bits."""
    rule = d5.optimizers.KerasOptimizer(name, **CASES[name])
    np.testing.assert_array_equal(walk(rule, "numpy", between), walk(rule))


@pytest.mark.parametrize("name", ["SGD", "Adafactor"])
def test_its_rate_follows_a_schedule(name: str) -> None:
    rates = [0.2 * 0.7**step for step in range(len(GRADIENTS))]
    schedule = d5.schedules.Computed(lambda step: 0.2 * 0.7**step, unit="step")
    found = walk(
        d5.optimizers.Scheduled(d5.optimizers.KerasOptimizer(name, **CASES[name]), learning_rate=schedule)
    )
    np.testing.assert_allclose(found, native(name, rates, **CASES[name]), rtol=2e-5, atol=1e-6)


def test_another_setting_follows_a_schedule() -> None:
    """The first three steps without momentum, the rest with: as d5ray's Momentum does."""
    schedule = d5.schedules.Computed(lambda step: 0.0 if step < 3 else 0.9, unit="step")
    found = walk(
        d5.optimizers.Scheduled(
            d5.optimizers.KerasOptimizer("SGD", learning_rate=0.1, momentum=0.5), momentum=schedule
        )
    )
    x, velocity = START.copy(), np.zeros_like(START)
    for step, gradient in enumerate(GRADIENTS):
        velocity = (0.0 if step < 3 else 0.9) * velocity - np.float32(0.1) * gradient
        x += velocity
        np.testing.assert_allclose(found[step], x, rtol=2e-5, atol=1e-6)


def trained(optimizer: Any, **values: Any) -> Array:
    experiment = d5.Experiment(
        model="mlp", dataset="digits", optimizer=optimizer, agents=2, evaluate=False, seed=3, **values
    )
    with d5.simulate(experiment) as group:
        group.train(4, progress=False)
        return np.concatenate([tensor.ravel() for tensor in group.parameters().values()])


@pytest.mark.parametrize(
    "distributed",
    [d5.optimizers.AllreduceSGD(), d5.optimizers.ShardedAllreduceSGD(), d5.optimizers.ASGD()],
    ids=repr,
)
def test_it_trains_wherever_a_rule_of_d5ray_does(distributed: d5.DistributedOptimizer) -> None:
    """By allreduce, sharded, at parameter servers: as `SGD` does."""
    own = trained(d5.optimizers.SGD(0.05), distributed=distributed)
    found = trained(d5.optimizers.KerasOptimizer("SGD", learning_rate=0.05), distributed=distributed)
    assert np.linalg.norm(found - own) < 1e-5 * np.linalg.norm(own)


def test_who_looks_at_tensors_is_not_shared_out() -> None:
    assert not d5.optimizers.KerasOptimizer("Adam").tensorwise
    for rule in (d5.optimizers.KerasOptimizer("Lamb"), d5.optimizers.KerasOptimizer("Adam", clipnorm=1.0)):
        assert rule.tensorwise and rule.whole
        with pytest.raises(ConfigurationError, match="treats the model's tensors one by one"):
            rule.state(START[:5])


def test_it_can_be_written_and_set_in_a_recipe() -> None:
    wanted = {"optimizer": 'KerasOptimizer("Adam", learning_rate=0.001)', "optimizer.learning_rate": 0.01}
    made = settings.built(wanted)["optimizer"]
    assert made == d5.optimizers.KerasOptimizer("Adam", learning_rate=0.01)
    assert made.learning_rate == 0.01


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: d5.optimizers.KerasOptimizer("Adamm"), "has no optimizer 'Adamm': did you mean 'Adam"),
    (lambda: d5.optimizers.KerasOptimizer("SGD", lr=0.1), "cannot be made"),
    (lambda: d5.optimizers.KerasOptimizer(3), "3 is no optimizer: give the name"),
    (
        lambda: d5.optimizers.Scheduled(
            d5.optimizers.KerasOptimizer("SGD"), rate=d5.schedules.Cosine(0.1, 3)
        ),
        "has no 'rate' that could change",
    ),
]


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_what_is_wrong_is_said_when_it_is_written_down(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_a_state_of_another_model_is_refused() -> None:
    rule = d5.optimizers.KerasOptimizer("Adafactor")
    state = rule.state_for(START.copy(), SLOTS)
    other = {"slots": SLOTS[:1], "native": copy.deepcopy(state["native"])}
    with pytest.raises(ConfigurationError, match="it is of another model"):
        rule.step(START[:12].copy(), START[:12].copy(), other)
