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
from d5ray.frameworks.torch.given_optimizers import as_optimizer
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
    "Muon": {"learning_rate": 0.02, "exclude_layers": ["matrix"]},
    "ScheduleFreeAdamW": {"learning_rate": 0.01, "warmup_steps": 2},
}
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "accumulated": ("Adam", {"learning_rate": 0.01, "gradient_accumulation_steps": 2}),
    "clipped": ("SGD", {"learning_rate": 0.1, "global_clipnorm": 0.5}),
    "averaged": ("SGD", {"learning_rate": 0.1, "use_ema": True, "ema_overwrite_frequency": 2}),
    "Muon for all matrices": ("Muon", {"learning_rate": 0.02}),
}
SCHEDULES: dict[str, tuple[dict[str, Any], d5.Schedule]] = {
    "ExponentialDecay": (
        {"initial_learning_rate": 0.1, "decay_steps": 4, "decay_rate": 0.5},
        d5.schedules.Computed(lambda t: 0.1 * 0.5 ** (t / 4)),
    ),
    "PiecewiseConstantDecay": (  # a boundary itself has the value before it
        {"boundaries": [3, 7], "values": [0.1, 0.05, 0.01]},
        d5.schedules.Piecewise(0.1, {4: 0.05, 8: 0.01}),
    ),
    "PolynomialDecay": (
        {"initial_learning_rate": 0.1, "decay_steps": 10, "end_learning_rate": 0.01, "power": 2.0},
        d5.schedules.Polynomial(0.1, 10, 0.01, 2.0),
    ),
    "InverseTimeDecay": (
        {"initial_learning_rate": 0.1, "decay_steps": 4, "decay_rate": 0.5},
        d5.schedules.Computed(lambda t: 0.1 / (1 + 0.5 * t / 4)),
    ),
    "CosineDecay": (
        {"initial_learning_rate": 0.1, "decay_steps": 10, "alpha": 0.1},
        d5.schedules.Cosine(0.1, 10, 0.01),
    ),
    "CosineDecayRestarts": (
        {"initial_learning_rate": 0.1, "first_decay_steps": 4, "t_mul": 1.0},
        d5.schedules.Computed(lambda t: d5.schedules.Cosine(0.1, 4).value(t % 4)),
    ),
}


def test_every_optimizer_and_schedule_of_keras_is_here() -> None:
    """But for those that are refused, and what these hold."""
    of, schedules = vars(tf.keras.optimizers), vars(tf.keras.optimizers.schedules)
    kinds = {name for name, kind in of.items() if isinstance(kind, type) and name != "Optimizer"}
    assert kinds <= CASES.keys() | {"LossScaleOptimizer", "MultiOptimizer", "OptimizerMap"}
    assert {name for name, kind in schedules.items() if isinstance(kind, type)} <= SCHEDULES.keys() | {
        "LearningRateSchedule"
    }


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_that_of_keras(name: str) -> None:
    """Thirteen steps, in float32; and an optimizer that has it goes its way."""
    settings, own = SCHEDULES[name]
    schedule = getattr(tf.keras.optimizers.schedules, name)(**settings)
    found = [float(schedule(step)) for step in range(13)]
    np.testing.assert_allclose(found, [own.value(step) for step in range(13)], rtol=2e-6, atol=1e-8)
    given = as_optimizer(tf.keras.optimizers.SGD(schedule))
    assert given == as_optimizer(tf.keras.optimizers.SGD(schedule))
    scheduled = d5.optimizers.Scheduled(
        d5.optimizers.SGD(0.1), learning_rate=d5.schedules.Computed(own.value, unit="step")
    )
    np.testing.assert_allclose(walk(given), walk(scheduled), rtol=2e-5, atol=1e-6)


def test_names_of_variables_are_known() -> None:
    """By which decay leaves biases out: as a setting, of an instance, and of a class that does it itself."""

    class Own(tf.keras.optimizers.AdamW):  # type: ignore[misc, name-defined]
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.exclude_from_weight_decay(var_names=["bias"])

    settings = {"learning_rate": 0.01, "weight_decay": 0.5}
    instance = tf.keras.optimizers.AdamW(**settings)
    instance.exclude_from_weight_decay(var_names=["bias"])
    variables = [
        tf.keras.Variable(view, name=slot.name) for slot, view in zip(SLOTS, views(START), strict=True)
    ]
    peer = Own(**settings)
    for gradient in GRADIENTS:
        peer.apply([tf.constant(each) for each in views(gradient)], variables)
    expected = np.concatenate([each.numpy().ravel() for each in variables])
    for rule in (
        d5.optimizers.KerasOptimizer("AdamW", exclude_from_weight_decay=("bias",), **settings),
        d5.optimizers.KerasOptimizer(Own, **settings),
        as_optimizer(instance),
    ):
        assert rule.tensorwise
        np.testing.assert_allclose(walk(rule)[-1], expected, rtol=2e-5, atol=1e-6)
    by_object = tf.keras.optimizers.AdamW()
    by_object.exclude_from_weight_decay(var_list=variables[1:])
    with pytest.raises(ConfigurationError, match="exclude by names"):
        as_optimizer(by_object)


def test_a_scale_of_the_loss_is_no_rate() -> None:
    """Keras multiplies the loss by it, and divides the gradient."""
    rule = d5.optimizers.KerasOptimizer("SGD", learning_rate=0.1, loss_scale_factor=8.0)
    assert "loss_scale_factor" not in rule.first
    np.testing.assert_allclose(walk(rule), native("SGD", learning_rate=0.1), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["Adafactor", "AdamW"])
def test_a_tensor_without_a_gradient_stays(name: str) -> None:
    rule = d5.optimizers.KerasOptimizer(name, **CASES[name])
    x = START.copy()
    state = rule.state_for(x, SLOTS)
    for gradient in GRADIENTS:
        rule.step(x, gradient.copy(), state, SLOTS[1:])
    np.testing.assert_array_equal(x[12:], START[12:])
    peer = tf.Variable(views(START)[0])
    optimizer = getattr(tf.keras.optimizers, name)(**CASES[name])
    for gradient in GRADIENTS:
        optimizer.apply([tf.constant(views(gradient)[0])], [peer])
    np.testing.assert_allclose(x[:12], peer.numpy().ravel(), rtol=2e-5, atol=1e-6)


def views(flat: Any) -> list[Any]:
    return [flat[slot.offset : slot.offset + slot.size].reshape(slot.shape) for slot in SLOTS]


def native(name: str, rates: list[float] | None = None, **values: Any) -> list[Array]:
    """What Keras does to variables, call by call, as flat parameters after each step."""
    variables = [
        tf.keras.Variable(view, name=slot.name) for slot, view in zip(SLOTS, views(START), strict=True)
    ]
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
@pytest.mark.parametrize("case", [*CASES, *MORE])
def test_it_is_keras_optimizers(case: str, kind: str) -> None:
    """Six steps in float32, on arrays of both; a graph may round otherwise than single calls."""
    name, settings = MORE.get(case) or (case, CASES[case])
    found = walk(d5.optimizers.KerasOptimizer(name, **settings), kind)
    tolerance = 2e-2 if name == "Muon" else 2e-5
    np.testing.assert_allclose(found, native(name, **settings), rtol=tolerance, atol=tolerance / 20)
    assert not np.array_equal(found[1], START)


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
    (lambda: d5.optimizers.KerasOptimizer("LossScaleOptimizer", inner_optimizer="sgd"), "divides gradients"),
    (
        lambda: as_optimizer(
            tf.keras.optimizers.MultiOptimizer(tf.keras.optimizers.OptimizerMap(tf.keras.optimizers.SGD()))
        ),
        "do not take Keras's MultiOptimizer",
    ),
    (lambda: d5.optimizers.KerasOptimizer("SGD", use_ema=True), "set ema_overwrite_frequency"),
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
