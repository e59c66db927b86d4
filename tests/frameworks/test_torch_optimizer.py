"""Claims about PyTorch's own optimizers in d5ray: they are torch.optim, also when copied and read back"""

import copy
import json
import pickle
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

Array = np.ndarray[Any, Any]
SLOTS = (Slot("matrix", 0, (4, 3)), Slot("bias", 12, (3,)), Slot("kernel", 15, (2, 2, 3, 3)))
SIZE = 51
START = np.random.default_rng(1).standard_normal(SIZE)
GRADIENTS = np.random.default_rng(2).standard_normal((12, SIZE))


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
    matrices = [tensor for name, tensor in named if name != "bias"]
    biases = [tensor for name, tensor in named if name == "bias"]
    groups: list[dict[str, Any]] = [{"params": matrices}]
    if biases:
        groups.append({"params": biases, "lr": values["lr"] / 10})
    return torch.optim.SGD(groups, **values)


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
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


OTHERS = {"Muon", "SparseAdam"}  # of matrices alone, and of gradients that agents do not have: see below


def test_every_optimizer_of_torch_is_here() -> None:
    kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    names = {kind.__name__.lower() for kind in kinds if issubclass(kind, torch.optim.Optimizer)}
    tried = {rule if isinstance(rule, str) else rule.__name__ for rule, _ in CASES.values()} | OTHERS
    assert names - {"optimizer"} <= {name.lower() for name in tried}


def test_muon_of_torch_moves_matrices_alone() -> None:
    """A model that has vectors, too, is refused by a sentence before a step is done."""
    rule = d5.optimizers.TorchOptimizer("Muon", lr=0.1)
    x, slots = torch.tensor(START[:12]), SLOTS[:1]
    state, peer = rule.state_for(x, slots), torch.tensor(START[:12].reshape(4, 3))
    optimizer = torch.optim.Muon([peer], lr=0.1)
    for gradient in GRADIENTS[:, :12]:
        rule.step(x, torch.tensor(gradient), state)
        peer.grad = torch.tensor(gradient.reshape(4, 3))
        optimizer.step()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(x.view(4, 3), peer, rtol=1e-12, atol=1e-14)
    with pytest.raises(ConfigurationError, match=r"Optimizer\('Muon', lr=0.1\) does not take the model's"):
        rule.state_for(torch.tensor(START), SLOTS)


def views(flat: Any) -> list[Any]:
    return [flat[slot.offset : slot.offset + slot.size].reshape(slot.shape) for slot in SLOTS]


def array(values: Array, kind: str) -> Any:
    return torch.tensor(values) if kind == "torch" else values.copy()


def native(rule: Any, values: dict[str, Any], rates: list[float] | None = None) -> list[Array]:
    """What torch.optim does to the tensors, as flat parameters after each step."""
    tensors = [torch.tensor(view) for view in views(START)]
    if isinstance(rule, str):
        rule = {name.lower(): kind for name, kind in vars(torch.optim).items()}[rule.lower()]
    named = list(zip([slot.name for slot in SLOTS], tensors, strict=True))
    optimizer = rule(named if rule is slow_biases else tensors, **values)
    begun, found = [group["lr"] for group in optimizer.param_groups], []
    for step, gradient in enumerate(GRADIENTS):
        for tensor, view in zip(tensors, views(gradient), strict=True):
            tensor.grad = torch.tensor(view)
        for group, first in zip(optimizer.param_groups, begun, strict=True):
            group["lr"] = first if rates is None else first * rates[step] / begun[0]
        with torch.no_grad():
            optimizer.step(*([lambda: 0.0] if isinstance(optimizer, torch.optim.LBFGS) else []))
        found.append(np.concatenate([tensor.numpy().ravel() for tensor in tensors]))
    return found


Change = Callable[[Any, Any], tuple[Any, Any]]


def walk(rule: Optimizer, kind: str, between: Change | None = None) -> list[Array]:
    x = array(START, kind)
    state, found = rule.state_for(x, SLOTS), []
    for step, gradient in enumerate(GRADIENTS):
        if between and step % 5 == 4:
            x, state = between(x, state)
        given = array(gradient, kind)
        rule.step(x, given, state)
        np.testing.assert_array_equal(np.asarray(given), gradient)
        found.append(np.asarray(x).copy())
    return found


@pytest.mark.every_case
@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_it_is_torch_optim(name: str, kind: str) -> None:
    """Twelve steps in float64, on arrays of both; gradients stay as they are."""
    rule, values = CASES[name]
    found = walk(d5.optimizers.TorchOptimizer(rule, **values), kind)
    np.testing.assert_allclose(found, native(rule, values), rtol=1e-12, atol=1e-14)
    assert not np.array_equal(found[0], START)


def moved(x: Any, state: Any) -> tuple[Any, Any]:
    """To other memory, with a deep copy of the state."""
    return copy.deepcopy(x), copy.deepcopy(state)


def pickled(x: Any, state: Any) -> tuple[Any, Any]:
    moved: tuple[Any, Any] = pickle.loads(pickle.dumps((x, state)))
    return moved


def plain(value: Any) -> Any:
    """Dictionaries, lists, NumPy arrays and plain values, whatever it was; anything else is an error."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value] if isinstance(value, list) else value
    if isinstance(value, torch.Tensor):
        return value.numpy().copy()
    assert value is None or isinstance(value, (bool, int, float, str, np.ndarray)), value
    return value


def read_back(x: Any, state: Any) -> tuple[Any, Any]:
    """Without anything of PyTorch."""
    return x, {"slots": state["slots"], "native": plain(state["native"])}


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


@pytest.mark.parametrize(
    ("between", "kind"),
    [
        (moved, "torch"),
        (pickled, "numpy"),
        (read_back, "torch"),
        (checkpointed, "numpy"),
        (checkpointed, "torch"),
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_its_state_can_be_copied_and_read_back(name: str, kind: str, between: Change) -> None:
    """Twice within twelve steps, each time into a state without an engine: the same bits."""
    rule, values = CASES[name]
    optimizer = d5.optimizers.TorchOptimizer(rule, **values)
    np.testing.assert_array_equal(walk(optimizer, kind, between), walk(optimizer, kind))


def test_a_copy_of_a_state_is_of_its_own() -> None:
    """What goes on with the copy leaves the first as it was."""
    rule = d5.optimizers.TorchOptimizer("Adam")
    x, gradient = START.copy(), GRADIENTS[0]
    state = rule.state(x)
    rule.step(x, gradient, state)
    before = plain(state["native"])
    other, its = copy.deepcopy((x, state))
    for _ in range(3):
        rule.step(other, gradient, its)
    np.testing.assert_equal(plain(state["native"]), before)


@pytest.mark.parametrize("name", ["SGD", "AdamW, fused", "Adafactor", "groups of one's own"])
@pytest.mark.parametrize("between", [None, read_back])
def test_its_settings_follow_a_schedule(name: str, between: Change | None) -> None:
    """As when every group's rate is multiplied alike; also when the state is read back half-way."""
    rule, values = CASES[name]
    rates = [0.2 * 0.7**step for step in range(len(GRADIENTS))]
    schedule = d5.schedules.Computed(lambda step: 0.2 * 0.7**step, unit="step")
    kept = (lambda x, state: (x, read_back(x, state)[1] | {"moment": state["moment"]})) if between else None
    for setting in ("lr", "learning_rate"):
        found = walk(
            d5.optimizers.Scheduled(d5.optimizers.TorchOptimizer(rule, **values), **{setting: schedule}),
            "torch",
            kept,
        )
        np.testing.assert_allclose(found, native(rule, values, rates), rtol=1e-12, atol=1e-14)


def test_who_looks_at_single_elements_may_be_shared_out() -> None:
    """Two halves with states of their own are the whole; who looks at tensors refuses a half."""
    rule = d5.optimizers.TorchOptimizer("AdamW", lr=0.1)
    assert not (rule.whole or rule.tensorwise)
    x = START.copy()
    states = [rule.state(x[:20]), rule.state(x[20:])]
    for gradient in GRADIENTS:
        rule.step(x[:20], gradient[:20], states[0])
        rule.step(x[20:], gradient[20:], states[1])
    np.testing.assert_allclose(x, walk(rule, "numpy")[-1], rtol=1e-12)
    for looks in (d5.optimizers.TorchOptimizer("Adafactor"), d5.optimizers.TorchOptimizer(Signed, lr=0.1)):
        assert looks.whole and looks.tensorwise
        with pytest.raises(ConfigurationError, match="treats the model's tensors one by one"):
            looks.state(x)
        with pytest.raises(ConfigurationError, match="treats the model's tensors one by one"):
            looks.state_for(x[:20], SLOTS)


def trained(optimizer: Any, **values: Any) -> Array:
    experiment = d5.Experiment(
        model="mlp", dataset="digits", optimizer=optimizer, agents=2, evaluate=False, seed=3, **values
    )
    with d5.simulate(experiment) as group:
        group.train(6, progress=False)
        return np.concatenate([tensor.ravel() for tensor in group.parameters().values()])


@pytest.mark.full
@pytest.mark.parametrize(
    "distributed",
    [
        d5.optimizers.AllreduceSGD(),
        d5.optimizers.ShardedAllreduceSGD(),
        d5.optimizers.ASGD(),
        d5.optimizers.DiLoCo(2, d5.optimizers.TorchOptimizer("SGD", lr=0.7)),
    ],
)
def test_it_trains_wherever_a_rule_of_d5ray_does(distributed: d5.DistributedOptimizer) -> None:
    """By allreduce, sharded, at parameter servers (NumPy there), as an outer rule: as `Adam`, to 1e-5."""
    own = trained(d5.optimizers.Adam(0.003), distributed=distributed)
    found = trained(d5.optimizers.TorchOptimizer("Adam", lr=0.003), distributed=distributed)
    assert np.linalg.norm(found - own) < 1e-5 * np.linalg.norm(own)


def test_it_can_be_written_and_set_in_a_recipe() -> None:
    """`--set 'optimizer=TorchOptimizer("Adam", lr=0.001)' --set optimizer.lr=0.01`."""
    made = settings.built({"optimizer": 'TorchOptimizer("Adam", lr=0.001)', "optimizer.lr": 0.01})[
        "optimizer"
    ]
    assert made == d5.optimizers.TorchOptimizer("Adam", lr=0.01)
    assert (made.learning_rate, made.with_rate(0.5).learning_rate) == (0.01, 0.5)
    assert repr(made) == "TorchOptimizer('Adam', lr=0.01)"
    rules = made, d5.optimizers.TorchOptimizer("Adam", lr=0.01), made.with_rate(0.5)
    one, same, other = (d5.Experiment("mlp", "digits", optimizer=rule).hash for rule in rules)
    assert one == same != other


def forgets(named: list[tuple[str, torch.Tensor]]) -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.ones(2)], lr=0.1)


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: d5.optimizers.TorchOptimizer("Adamm"), "has no optimizer 'Adamm': did you mean 'Adam'"),
    (lambda: d5.optimizers.TorchOptimizer("SGD", lr=-1), "cannot be made: Invalid learning rate"),
    (lambda: d5.optimizers.TorchOptimizer("SGD", rate=0.1), "unexpected keyword argument 'rate'"),
    (lambda: d5.optimizers.TorchOptimizer("LBFGS"), "a second gradient within a step.*max_iter=1"),
    (lambda: d5.optimizers.TorchOptimizer("SparseAdam"), "cannot do a step"),
    (lambda: d5.optimizers.TorchOptimizer(3), "3 is no optimizer: give the name"),
    (lambda: d5.optimizers.TorchOptimizer(torch.nn.Linear), "is no optimizer: give the name"),
    (
        lambda: d5.optimizers.TorchOptimizer(forgets),
        "takes 1 tensors, and was given 1: it must move exactly those"
    ),
    (
        lambda: d5.optimizers.Scheduled(
            d5.optimizers.TorchOptimizer("SGD", lr=0.1), rate=d5.schedules.Cosine(0.1, 3)
        ),
        "has no 'rate' that could change",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), WRONG)
def test_what_is_wrong_is_said_when_it_is_written_down(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_a_state_of_another_model_is_refused() -> None:
    rule = d5.optimizers.TorchOptimizer("Adafactor")
    x = torch.tensor(START)
    state = rule.state_for(x, SLOTS)
    other = {"slots": SLOTS[:2], "native": plain(state["native"])}
    with pytest.raises(ConfigurationError, match="of 3 tensors, here are 2: it is of another model"):
        rule.step(x[:15], x[:15], other)
