"""Claims about optimizers of PyTorch, Keras and Optax in d5ray: they are their libraries', also read back"""

import copy
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.checkpoints.state import pack, unpack_into
from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch.given_optimizers import as_optimizer
from d5ray.networks.executors.flat_buffers import Slot, by_name
from d5ray.recipes.engine.parsing import settings
from d5ray.training.optimizers.optimizer import Optimizer

Array = np.ndarray[Any, Any]
ALL_SLOTS = (Slot("matrix", 0, (4, 3)), Slot("bias", 12, (3,)), Slot("kernel", 15, (2, 2, 3, 3)))
START = np.random.default_rng(1).standard_normal(51)
GRADIENTS = np.random.default_rng(2).standard_normal((8, 51))
TorchOptimizer, KerasOptimizer = d5.optimizers.TorchOptimizer, d5.optimizers.KerasOptimizer
OptaxOptimizer, Scheduled = d5.optimizers.OptaxOptimizer, d5.optimizers.Scheduled


class Signed(torch.optim.Optimizer):
    """A user's own, with a count of its own: x ← x − η sign(g) / √t."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": 0.5})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for tensor in group["params"]:
                state = self.state[tensor]
                state["t"] = state.get("t", 0) + 1
                tensor.add_(tensor.grad.sign(), alpha=-group["lr"] / state["t"] ** 0.5)


def slow_biases(named: list[tuple[str, torch.Tensor]], **values: Any) -> torch.optim.Optimizer:
    """Two groups: matrices and kernels, and biases with a tenth of the rate."""
    biases = [tensor for name, tensor in named if name == "bias"]
    groups: list[dict[str, Any]] = [{"params": [tensor for name, tensor in named if name != "bias"]}]
    if biases:
        groups.append({"params": biases, "lr": values["lr"] / 10})
    return torch.optim.SGD(groups, **values)


def clipped(learning_rate: float) -> Any:
    """A chain of Optax's, which sees all tensors."""
    optax = pytest.importorskip("optax")
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate))


TORCH: dict[str, tuple[Any, dict[str, Any]]] = {
    "SGD": ("SGD", {"lr": 0.1}),
    "Nesterov": ("sgd", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "Adam": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    "AdamW, fused": ("AdamW", {"lr": 0.01, "fused": True}),
    "AMSGrad, foreach": ("Adam", {"amsgrad": True, "foreach": True}),
    "Adadelta": ("Adadelta", {"lr": 0.5}),
    "Adagrad": ("Adagrad", {"lr_decay": 0.1}),
    "Adamax": ("Adamax", {}),
    "ASGD": ("ASGD", {"lr": 0.1, "t0": 3}),
    "NAdam": ("NAdam", {}),
    "RAdam": ("RAdam", {"lr": 0.1}),
    "RMSprop": ("RMSprop", {"momentum": 0.5, "centered": True}),
    "Rprop": ("Rprop", {}),
    "Adafactor": ("Adafactor", {"lr": 0.3}),
    "LBFGS": ("LBFGS", {"lr": 0.5, "max_iter": 1, "history_size": 3}),
    "a class of one's own": (Signed, {"lr": 0.1}),
    "groups of one's own": (slow_biases, {"lr": 0.1, "momentum": 0.5}),
}
KERAS: dict[str, tuple[Any, dict[str, Any]]] = {
    "SGD": ("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    "Adam": ("Adam", {"learning_rate": 0.01, "amsgrad": True}),
    "AdamW": ("AdamW", {"learning_rate": 0.01, "weight_decay": 0.1}),
    "Adagrad": ("Adagrad", {"learning_rate": 0.1}),
    "Adadelta": ("Adadelta", {"learning_rate": 0.5}),
    "Adamax": ("Adamax", {}),
    "Nadam": ("Nadam", {"learning_rate": 0.01}),
    "RMSprop": ("RMSprop", {"learning_rate": 0.01, "centered": True}),
    "Lion": ("Lion", {"learning_rate": 0.01}),
    "Ftrl": ("Ftrl", {"learning_rate": 0.1}),
    "Adafactor": ("Adafactor", {"learning_rate": 0.1}),
    "Lamb": ("Lamb", {"learning_rate": 0.01}),
    "Muon": ("Muon", {"learning_rate": 0.02, "exclude_layers": ["matrix"]}),
    "ScheduleFreeAdamW": ("ScheduleFreeAdamW", {"learning_rate": 0.01, "warmup_steps": 2}),
    "accumulated": ("Adam", {"learning_rate": 0.01, "gradient_accumulation_steps": 2}),
    "clipped": ("SGD", {"learning_rate": 0.1, "global_clipnorm": 0.5}),
    "averaged": ("SGD", {"learning_rate": 0.1, "use_ema": True, "ema_overwrite_frequency": 2}),
    "Muon for all matrices": ("Muon", {"learning_rate": 0.02}),
}
OPTAX: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    "adamw": ("adamw", {"learning_rate": 0.01, "weight_decay": 0.1}),
    "rmsprop": ("rmsprop", {"learning_rate": 0.01}),
    "lion": ("lion", {"learning_rate": 0.01}),
    "lamb": ("lamb", {"learning_rate": 0.01}),
    "a chain": (clipped, {"learning_rate": 0.1}),
}
MODULES = {"torch": "torch", "keras": "tensorflow", "optax": "optax"}
CASES = {
    (library, name): case
    for library, cases in (("torch", TORCH), ("keras", KERAS), ("optax", OPTAX))
    for name, case in cases.items()
}


class Library:
    """One of the three: its rules as d5ray's, what it does itself, on how many tensors, and how near."""

    def __init__(self, name: str) -> None:
        self.module = pytest.importorskip(MODULES[name])
        self.name, self.kind = name, "float32" if name == "keras" else "float64"
        self.slots = ALL_SLOTS if name == "torch" else ALL_SLOTS[:2]
        self.size = sum(slot.size for slot in self.slots)
        self.start = START[: self.size].astype(self.kind)
        self.gradients = GRADIENTS[:, : self.size].astype(self.kind)
        self.near: Any = {"rtol": 2e-5, "atol": 1e-6} if name == "keras" else {"rtol": 1e-12, "atol": 1e-14}

    def rule(self, rule: Any, **values: Any) -> Optimizer:
        kinds: dict[str, Any] = {"torch": TorchOptimizer, "keras": KerasOptimizer, "optax": OptaxOptimizer}
        made: Optimizer = kinds[self.name](rule, **values)
        return made

    def native(self, rule: Any, values: dict[str, Any], rates: list[float] | None = None) -> list[Array]:
        """What the library does to its tensors, as flat parameters after each step."""
        return getattr(self, f"_{self.name}")(rule, values, rates)  # type: ignore[no-any-return]

    def views(self, flat: Array) -> list[Array]:
        return list(by_name(flat, self.slots).values())

    def _torch(self, rule: Any, values: dict[str, Any], rates: list[float] | None) -> list[Array]:
        tensors = [torch.tensor(view) for view in self.views(self.start)]
        if isinstance(rule, str):
            rule = {name.lower(): kind for name, kind in vars(torch.optim).items()}[rule.lower()]
        named = list(zip([slot.name for slot in self.slots], tensors, strict=True))
        optimizer = rule(named if rule is slow_biases else tensors, **values)
        begun, found = [group["lr"] for group in optimizer.param_groups], []
        for step, gradient in enumerate(self.gradients):
            for tensor, view in zip(tensors, self.views(gradient), strict=True):
                tensor.grad = torch.tensor(view)
            for group, first in zip(optimizer.param_groups, begun, strict=True):
                group["lr"] = first if rates is None else first * rates[step] / begun[0]
            with torch.no_grad():
                optimizer.step(*([lambda: 0.0] if isinstance(optimizer, torch.optim.LBFGS) else []))
            found.append(np.concatenate([tensor.numpy().ravel() for tensor in tensors]))
        return found

    def variables(self) -> list[Any]:
        return [
            self.module.keras.Variable(view, name=name)
            for name, view in by_name(self.start, self.slots).items()
        ]

    def _keras(self, rule: Any, values: dict[str, Any], rates: list[float] | None) -> list[Array]:
        variables, found = self.variables(), []
        optimizer = (getattr(self.module.keras.optimizers, rule) if isinstance(rule, str) else rule)(**values)
        for step, gradient in enumerate(self.gradients):
            if rates is not None:
                optimizer.learning_rate = rates[step]
            optimizer.apply([self.module.constant(view) for view in self.views(gradient)], variables)
            found.append(np.concatenate([variable.numpy().ravel() for variable in variables]))
        return found

    def _optax(self, rule: Any, values: dict[str, Any], rates: list[float] | None) -> list[Array]:
        jax = pytest.importorskip("jax")
        function = getattr(self.module, rule) if isinstance(rule, str) else rule
        found = []
        with jax.enable_x64(True):
            tensors = by_name(self.start.copy(), self.slots)
            state = function(**values).init(tensors)
            for step, gradient in enumerate(self.gradients):
                own = values if rates is None else {**values, "learning_rate": rates[step]}
                moves, state = function(**own).update(by_name(gradient, self.slots), state, tensors)
                tensors = self.module.apply_updates(tensors, moves)
                found.append(np.concatenate([np.asarray(tensors[slot.name]).ravel() for slot in self.slots]))
        return found

    def walk(self, rule: Optimizer, kind: str = "numpy", between: Any = None) -> list[Array]:
        """The same by d5ray's rule, on arrays of this kind; gradients stay as they are."""
        x: Any = torch.tensor(self.start) if kind == "torch" else self.start.copy()
        state, found = rule.state_for(x, self.slots), []
        for step, gradient in enumerate(self.gradients):
            if between and step % 3 == 2:
                x, state = between(rule, x, state, self.slots)
            given: Any = torch.tensor(gradient) if kind == "torch" else gradient.copy()
            rule.step(x, given, state)
            np.testing.assert_array_equal(np.asarray(given), gradient)
            found.append(np.asarray(x).copy())
        return found


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("library", "name"),
    [pytest.param(*case, marks=pytest.mark.every_case) if case[0] == "torch" else case for case in CASES],
)
def test_it_is_the_librarys_optimizer(library: str, name: str, kind: str) -> None:
    """Eight steps; a graph of TensorFlow's may round otherwise than single calls."""
    own, (rule, values) = Library(library), CASES[library, name]
    found = own.walk(own.rule(rule, **values), kind)
    near = {"rtol": 2e-2, "atol": 1e-3} if (library, rule) == ("keras", "Muon") else own.near
    np.testing.assert_allclose(found, own.native(rule, values), **near)
    assert not np.array_equal(found[1], own.start)


def moved(rule: Optimizer, x: Any, state: Any, slots: Any) -> tuple[Any, Any]:
    """To other memory, with a deep copy of the state, which what the first does now leaves as it was."""
    copied: tuple[Any, Any] = copy.deepcopy((x, state))
    for _ in range(2):
        rule.step(x, copy.deepcopy(x), state)
    return copied


def checkpointed(rule: Optimizer, x: Any, state: Any, slots: Any) -> tuple[Any, Any]:
    """Packed as a checkpoint is, and unpacked into a state that was made anew for other memory."""
    packed = pack(SimpleNamespace(state=state), "optimizer")
    data = json.loads(json.dumps(packed.data))
    arrays = {name: array.copy() for name, array in packed.arrays.items()}
    other = copy.deepcopy(x)
    fresh = SimpleNamespace(state=rule.state_for(other, slots))
    unpack_into(fresh, Packed(data, arrays), other, "optimizer")
    return other, fresh.state


@pytest.mark.parametrize(("between", "kind"), [(moved, "torch"), (checkpointed, "numpy")])
@pytest.mark.parametrize(
    ("library", "name"),
    [
        *(("torch", name) for name in TORCH),
        *(pytest.param("keras", name, marks=pytest.mark.full) for name in ("Adam", "Adafactor")),
        *(("optax", name) for name in ("adamw", "a chain")),
    ],
)
def test_its_state_can_be_copied_and_read_back(library: str, name: str, kind: str, between: Any) -> None:
    """Twice within eight steps, each time into a state without an engine: the same bits."""
    own, (rule, values) = Library(library), CASES[library, name]
    optimizer = own.rule(rule, **values)
    np.testing.assert_array_equal(own.walk(optimizer, kind, between), own.walk(optimizer, kind))


SCHEDULED = [
    *(("torch", name) for name in ("SGD", "AdamW, fused", "Adafactor", "groups of one's own")),
    ("keras", "SGD"), ("keras", "Adafactor"), ("optax", "sgd"),
]  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize(("library", "name"), SCHEDULED)
def test_its_rate_follows_a_schedule(library: str, name: str) -> None:
    """As when every group's rate is multiplied alike; momentum is from before."""
    own, (rule, values) = Library(library), CASES[library, name]
    rates = [0.2 * 0.7**step for step in range(len(GRADIENTS))]
    schedule = d5.schedules.Computed(lambda step: 0.2 * 0.7**step, unit="step")
    for setting in ("lr", "learning_rate") if library == "torch" else ("learning_rate",):
        found = own.walk(Scheduled(own.rule(rule, **values), **{setting: schedule}), "numpy")
        np.testing.assert_allclose(found, own.native(rule, values, rates), **own.near)


def test_another_setting_follows_a_schedule() -> None:
    """The first three steps without momentum, the rest with."""
    own = Library("keras")
    schedule = d5.schedules.Computed(lambda step: 0.0 if step < 3 else 0.9, unit="step")
    rule = own.rule("SGD", learning_rate=0.1, momentum=0.5)
    found, x, velocity = own.walk(Scheduled(rule, momentum=schedule)), own.start.copy(), 0.0
    for step, gradient in enumerate(own.gradients):
        velocity = (0.0 if step < 3 else 0.9) * velocity - np.float32(0.1) * gradient
        x += velocity
        np.testing.assert_allclose(found[step], x, **own.near)


def test_every_optimizer_of_torch_and_keras_is_here() -> None:
    """But for those that are refused, and what these hold."""
    kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    names = {kind.__name__.lower() for kind in kinds if issubclass(kind, torch.optim.Optimizer)}
    tried = {rule if isinstance(rule, str) else rule.__name__ for rule, _ in TORCH.values()}
    assert names - {"optimizer"} <= {name.lower() for name in tried | {"Muon", "SparseAdam"}}
    of = pytest.importorskip("tensorflow").keras.optimizers
    known = {name for name, kind in vars(of).items() if isinstance(kind, type) and name != "Optimizer"}
    assert known <= KERAS.keys() | {"LossScaleOptimizer", "MultiOptimizer", "OptimizerMap"}
    schedules = {name for name, kind in vars(of.schedules).items() if isinstance(kind, type)}
    assert schedules <= SCHEDULES.keys() | {"LearningRateSchedule"}


def test_muon_of_torch_moves_matrices_alone() -> None:
    """A model that has vectors, too, is refused before a step is done."""
    rule = TorchOptimizer("Muon", lr=0.1)
    x, slots = torch.tensor(START[:12]), ALL_SLOTS[:1]
    state, peer = rule.state_for(x, slots), torch.tensor(START[:12].reshape(4, 3))
    optimizer = torch.optim.Muon([peer], lr=0.1)
    for gradient in GRADIENTS[:, :12]:
        rule.step(x, torch.tensor(gradient), state)
        peer.grad = torch.tensor(gradient.reshape(4, 3))
        optimizer.step()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.view(4, 3), peer, rtol=1e-12, atol=1e-14)
    with pytest.raises(ConfigurationError, match=r"Optimizer\('Muon', lr=0.1\) does not take the model's"):
        rule.state_for(torch.tensor(START), ALL_SLOTS)


# -- Keras -------------------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_that_of_keras(name: str) -> None:
    """Thirteen steps, in float32; and an optimizer that has it goes its way."""
    library, (values, own) = Library("keras"), SCHEDULES[name]
    of = library.module.keras.optimizers
    schedule = getattr(of.schedules, name)(**values)
    found = [float(schedule(step)) for step in range(13)]
    np.testing.assert_allclose(found, [own.value(step) for step in range(13)], rtol=2e-6, atol=1e-8)
    given = as_optimizer(of.SGD(schedule))
    assert given == as_optimizer(of.SGD(schedule))
    computed = d5.schedules.Computed(own.value, unit="step")
    scheduled = Scheduled(d5.optimizers.SGD(0.1), learning_rate=computed)
    np.testing.assert_allclose(library.walk(given), library.walk(scheduled), **library.near)


def test_names_of_variables_are_known() -> None:
    """By which decay leaves biases out: as a setting, of an instance, and of a class that does it itself."""
    library = Library("keras")
    of = library.module.keras.optimizers

    class Own(of.AdamW):  # type: ignore[misc, name-defined]
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.exclude_from_weight_decay(var_names=["bias"])

    values = {"learning_rate": 0.01, "weight_decay": 0.5}
    instance, by_object = of.AdamW(**values), of.AdamW()
    instance.exclude_from_weight_decay(var_names=["bias"])
    expected = library.native(Own, values)
    excluding = KerasOptimizer("AdamW", exclude_from_weight_decay=("bias",), **values)
    for rule in (excluding, KerasOptimizer(Own, **values), as_optimizer(instance)):
        assert rule.tensorwise
        np.testing.assert_allclose(library.walk(rule), expected, **library.near)
    by_object.exclude_from_weight_decay(var_list=library.variables()[1:])
    with pytest.raises(ConfigurationError, match="exclude by names"):
        as_optimizer(by_object)


def test_a_scale_of_the_loss_is_no_rate() -> None:
    """Keras multiplies the loss by it, and divides the gradient."""
    own, rule = Library("keras"), KerasOptimizer("SGD", learning_rate=0.1, loss_scale_factor=8.0)
    assert "loss_scale_factor" not in rule.first
    np.testing.assert_allclose(own.walk(rule), own.native("SGD", {"learning_rate": 0.1}), **own.near)


@pytest.mark.parametrize("name", ["Adafactor", "AdamW"])
def test_a_tensor_without_a_gradient_stays(name: str) -> None:
    own, (_, values) = Library("keras"), KERAS[name]
    rule, x = KerasOptimizer(name, **values), own.start.copy()
    state = rule.state_for(x, own.slots)
    peer, optimizer = own.variables()[0], getattr(own.module.keras.optimizers, name)(**values)
    for gradient in own.gradients:
        rule.step(x, gradient.copy(), state, own.slots[1:])
        optimizer.apply([own.module.constant(own.views(gradient)[0])], [peer])
    np.testing.assert_array_equal(x[12:], own.start[12:])
    np.testing.assert_allclose(x[:12], peer.numpy().ravel(), **own.near)


# -- where they stand --------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", MODULES)
def test_who_looks_at_single_elements_may_be_shared_out(library: str) -> None:
    """Two halves with states of their own are the whole; who looks at tensors refuses a half."""
    rules: dict[str, tuple[Optimizer, list[Optimizer]]] = {
        "torch": (
            TorchOptimizer("AdamW", lr=0.1), [TorchOptimizer("Adafactor"), TorchOptimizer(Signed, lr=0.1)],
        ),
        "keras": (KerasOptimizer("Adam"), [KerasOptimizer("Lamb"), KerasOptimizer("Adam", clipnorm=1.0)]),
        "optax": (OptaxOptimizer("sgd", learning_rate=0.1), [OptaxOptimizer(clipped, learning_rate=0.1)]),
    }  # fmt: skip
    own, (rule, tensorwise) = Library(library), rules[library]
    assert not (rule.whole or rule.tensorwise)
    x = own.start.copy()
    states = [rule.state(x[:5]), rule.state(x[5:])]
    for gradient in own.gradients:
        rule.step(x[:5], gradient[:5].copy(), states[0])
        rule.step(x[5:], gradient[5:].copy(), states[1])
    np.testing.assert_allclose(x, own.walk(rule)[-1], **own.near)
    for looks in tensorwise:
        assert looks.whole and looks.tensorwise
        with pytest.raises(ConfigurationError, match="treats the model's tensors one by one"):
            looks.state(x[:5])


def trained(optimizer: Any, distributed: Any) -> Array:
    experiment = d5.Experiment(
        "mlp", "digits", optimizer, agents=2, evaluate=False, seed=3, distributed=distributed
    )
    with d5.simulate(experiment) as group:
        group.train(4, progress=False)
        return np.concatenate([tensor.ravel() for tensor in group.parameters().values()])


@pytest.mark.parametrize(
    ("own", "rule", "distributed"),
    [
        (d5.optimizers.Adam(0.003), TorchOptimizer("Adam", lr=0.003), d5.optimizers.ShardedAllreduceSGD()),
        (d5.optimizers.SGD(0.05), KerasOptimizer("SGD", learning_rate=0.05), d5.optimizers.ASGD()),
        pytest.param(
            d5.optimizers.SGD(0.05), TorchOptimizer("SGD", lr=0.05),
            d5.optimizers.DiLoCo(2, TorchOptimizer("SGD", lr=0.7)), marks=pytest.mark.full,
        ),
    ],
    ids=["sharded", "servers", "outer"],
)  # fmt: skip
def test_it_trains_wherever_a_rule_of_d5ray_does(own: Any, rule: Any, distributed: Any) -> None:
    """Sharded, at parameter servers (NumPy there), as an outer rule: as d5ray's own, to 1e-5."""
    expected, found = trained(own, distributed), trained(rule, distributed)
    assert np.linalg.norm(found - expected) < 1e-5 * np.linalg.norm(expected)


def test_it_can_be_written_and_set_in_a_recipe() -> None:
    """`--set 'optimizer=TorchOptimizer("Adam", lr=0.001)' --set optimizer.lr=0.01`."""
    for text, setting in (
        ('TorchOptimizer("Adam", lr=0.1)', "lr"),
        ('KerasOptimizer("Adam")', "learning_rate"),
    ):
        made = settings.built({"optimizer": text, f"optimizer.{setting}": 0.01})["optimizer"]
        assert (made.learning_rate, made.with_rate(0.5).learning_rate) == (0.01, 0.5)
        same = type(made)("Adam", **{setting: 0.01})
        one, equal, other = (
            d5.Experiment("mlp", "digits", optimizer=rule).hash for rule in (made, same, made.with_rate(0.5))
        )
        assert made == same and one == equal != other


def forgets(named: list[tuple[str, torch.Tensor]]) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.ones(2)], lr=0.1)


def several() -> Any:
    of = pytest.importorskip("tensorflow").keras.optimizers
    return as_optimizer(of.MultiOptimizer(of.OptimizerMap(of.SGD())))


COSINE = d5.schedules.Cosine(0.1, 3)
WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: TorchOptimizer("Adamm"), "has no optimizer 'Adamm': did you mean 'Adam'"),
    (lambda: TorchOptimizer("SGD", lr=-1), "cannot be made: Invalid learning rate"),
    (lambda: TorchOptimizer("SGD", rate=0.1), "unexpected keyword argument 'rate'"),
    (lambda: TorchOptimizer("LBFGS"), "a second gradient within a step.*max_iter=1"),
    (lambda: TorchOptimizer("SparseAdam"), "cannot do a step"),
    (lambda: TorchOptimizer(torch.nn.Linear), "is no optimizer: give the name"),
    (lambda: TorchOptimizer(forgets), "takes 1 tensors, and was given 1: it must move exactly those"),
    (lambda: Scheduled(TorchOptimizer("SGD", lr=0.1), rate=COSINE), "has no 'rate' that could change"),
    (lambda: KerasOptimizer("LossScaleOptimizer", inner_optimizer="sgd"), "divides gradients"),
    (several, "do not take Keras's MultiOptimizer"),
    (lambda: KerasOptimizer("SGD", use_ema=True), "set ema_overwrite_frequency"),
    (lambda: KerasOptimizer("Adamm"), "has no optimizer 'Adamm': did you mean 'Adam"),
    (lambda: KerasOptimizer("SGD", lr=0.1), "cannot be made"),
    (lambda: KerasOptimizer(3), "3 is no optimizer: give the name"),
    (lambda: OptaxOptimizer("adamm", learning_rate=0.1), "did you mean 'adam'"),
    (lambda: OptaxOptimizer("adam", lr=0.1), "cannot be made: .*lr"),
    (lambda: OptaxOptimizer("lbfgs", learning_rate=0.1), "cannot do a step"),
    (lambda: OptaxOptimizer(np.zeros, shape=3), "is no optimizer"),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("make", "message"), WRONG)
def test_what_is_wrong_is_said_when_it_is_written_down(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_a_tensor_without_a_gradient_in_one_step_is_trained_in_the_next() -> None:
    """It stays as it is in that step alone, under an optimizer that has all tensors."""
    own, gradient = Library("torch"), GRADIENTS[0].copy()
    rule, x = own.rule(slow_biases, lr=0.1), own.start.copy()
    state = rule.state_for(x, own.slots)
    rule.step_without(x, gradient, state, own.slots[1:2])
    rule.step(x, gradient, state)
    moved = by_name(own.start - x, own.slots)
    for (name, slopes), rate in zip(by_name(gradient, own.slots).items(), (0.2, 0.01, 0.2), strict=True):
        np.testing.assert_allclose(moved[name], rate * slopes, **own.near)


@pytest.mark.parametrize("library", ["torch", "keras"])
def test_a_state_of_another_model_is_refused(library: str) -> None:
    own = Library(library)
    rule = own.rule("Adafactor")
    state = rule.state_for(own.start.copy(), own.slots)
    other = {"slots": own.slots[:1], "native": copy.deepcopy(state["native"])}
    with pytest.raises(ConfigurationError, match="it is of another model"):
        rule.step(own.start[:12].copy(), own.start[:12].copy(), other)
