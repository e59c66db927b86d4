"""Modules, losses and optimizers that are handed over as they are, beside plain PyTorch with its own"""

import functools
import pickle
from collections.abc import Callable
from typing import Any, Self

import cloudpickle
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import OneCycleLR

import d5ray as d5
from d5ray.errors import ConfigurationError
from tests.plain_torch import TwoLayers, check_same, plain, samples, trained

SGD: Any = functools.partial(torch.optim.SGD, lr=0.2, momentum=0.9, weight_decay=0.1)
STEPS = 8  # with two evaluations of several agents between them
Loss = Callable[..., torch.Tensor]


class Net(TwoLayers):
    """The module that is given; what its subclasses prepare must be as in plain PyTorch."""


# -- functions that hold the module, and hooks ------------------------------------------------------------


class HookOverItself(Net):
    def prepare(self) -> None:
        self.gain = nn.Parameter(torch.ones(6))
        self.back.register_forward_hook(lambda _, __, found: found * self.gain)


class PassedHook(Net):
    """By a default argument, a partial, and a function within another."""

    def prepare(self) -> None:
        self.gain, self.shift = nn.Parameter(torch.ones(6)), nn.Parameter(torch.zeros(6))

        def shifted(found: torch.Tensor, parts: list[Any]) -> Any:
            return found + parts[0].shift

        self.back.register_forward_hook(lambda _, __, found, net=self: found * net.gain)
        added = functools.partial(shifted, parts=[self])
        self.head.register_forward_pre_hook(lambda _, given: (added(given[0]),))


class KeepsFeatures(Net):
    def prepare(self) -> None:
        self.kept: dict[str, torch.Tensor] = {}

        def keep(_: Any, __: Any, found: torch.Tensor) -> None:
            self.kept["back"] = found

        self.back.register_forward_hook(keep)

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.kept["back"])


class LambdaAttribute(Net):
    def prepare(self) -> None:
        self.middle = nn.Linear(6, 6)
        self.acts: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "relu": lambda hidden: torch.relu(self.middle(hidden))
        }

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.acts["relu"](hidden)


class HooksOfParameters(Net):
    def prepare(self) -> None:
        self.head.weight.register_hook(lambda slope: 0.25 * slope)  # type: ignore[no-untyped-call]

        def clip(tensor: torch.Tensor) -> None:
            assert tensor.grad is not None
            tensor.grad = 2 * tensor.grad

        self.back.weight.register_post_accumulate_grad_hook(clip)  # type: ignore[no-untyped-call]


# -- views of parameters, and modes that do something -----------------------------------------------------


class KeepsViews(Net):
    def prepare(self) -> None:
        self.pair = nn.Parameter(torch.randn(2, 6))
        self.row, self.all = self.pair.data[1], [self.back.weight.detach()]

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.tanh(hidden * self.row + self.pair[0]) + 0.1 * self.all[0].sum()


class Merging(nn.Linear):
    """A low-rank adapter, which is a part of the weight in evaluations (as loralib's is)."""

    def __init__(self) -> None:
        super().__init__(4, 6)
        self.up, self.down = nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.randn(2, 4))
        self.weight.requires_grad_(False)
        self.merged = False

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if mode == self.merged:
            self.weight.data += (self.up @ self.down) * (-1 if mode else 1)
            self.merged = not mode
        return self

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found = super().forward(inputs)
        return found if self.merged else found + inputs @ self.down.T @ self.up.T


class Adapted(Net):
    def prepare(self) -> None:
        self.back = Merging()


class FrozenNorm(Net):
    """Whose normalization is in evaluation mode as soon as somebody calls `train`."""

    def prepare(self) -> None:
        self.norm = nn.BatchNorm1d(6)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.norm.eval()
        return self

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(hidden))


MODULES: tuple[type[Net], ...] = (
    HookOverItself,
    PassedHook,
    KeepsFeatures,
    LambdaAttribute,
    HooksOfParameters,
    KeepsViews,
    Adapted,
    FrozenNorm,
)


def made(kind: Callable[[], Any], seed: int = 5) -> Any:
    torch.manual_seed(seed)
    return kind()


@pytest.mark.parametrize("by_class", [False, True], ids=["instance", "class"])
@pytest.mark.parametrize("kind", MODULES)
def test_an_agent_does_what_the_module_does(kind: type[Net], by_class: bool) -> None:
    """Two agents train copies of a module, or make their own, and evaluate; PyTorch trains another one."""
    given = kind if by_class else made(kind)
    found, batches, _ = trained(given, SGD, agents=2, steps=STEPS, evaluate=True)
    check_same(found, plain(lambda: kind().train(), SGD, batches))


@pytest.mark.parametrize("kind", [HooksOfParameters, HookOverItself, KeepsViews])
def test_an_experiment_that_was_sent_does_what_the_module_does(kind: type[Net]) -> None:
    """As agents in processes of their own get it; PyTorch pickles no hooks of parameters."""
    given = d5.Experiment(made(kind), samples(), SGD, agents=1, loss=cross_entropy, batch_size=4)
    sent = pickle.loads(cloudpickle.dumps(given))
    found, batches, _ = trained(sent.model, SGD, steps=STEPS)
    check_same(found, plain(kind, SGD, batches))
    plainer = d5.Experiment(made(Net), samples(), SGD, agents=1, loss=cross_entropy, batch_size=4)
    assert sent.hash == given.hash and given.hash != plainer.hash


# -- losses that use the model, or have a state ------------------------------------------------------------


class Penalty(nn.Module):
    """A loss that holds the model."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(scores, labels) + 0.1 * _size(self.net)


class Pulled(nn.Module):
    """A loss that has a parameter in common with the model."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return cross_entropy(scores, labels) + 0.1 * (self.weight - 1).square().sum()


class Growing:
    """A loss that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return cross_entropy(scores, labels) * (1 + 0.1 * self.calls)


class Shifted(nn.Module):
    """A loss with a mean that moves."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * scores.detach().mean(dim=0)
        return cross_entropy(scores - 3 * self.mean, labels)


def _size(net: nn.Module) -> torch.Tensor:
    total: torch.Tensor = sum((each.square().sum() for each in net.parameters()), torch.zeros(()))
    return total


def _penalized(net: nn.Module, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return cross_entropy(scores, labels) + 0.1 * _size(net)


LOSSES: dict[str, Callable[[Any], Loss]] = {
    "a lambda over the model": lambda net: lambda scores, labels: _penalized(net, scores, labels),
    "a partial of it": lambda net: functools.partial(_penalized, net),
    "a module that holds it": Penalty,
    "a parameter in common": lambda net: Pulled(net.head.weight),
    "counts": lambda _: Growing(),
    "a mean that moves": lambda _: Shifted(),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_uses_the_model_that_is_trained(name: str) -> None:
    """Also what a loss keeps is as after the steps alone, whatever was tried before."""
    net = made(Net)
    found, batches, _ = trained(net, SGD, loss=LOSSES[name](net), steps=STEPS)
    own = made(Net)
    check_same(found, plain(lambda: own, SGD, batches, loss=LOSSES[name](own)))


def test_weights_of_classes_are_of_the_precision() -> None:
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    found, batches, _ = trained(made(Net), SGD, loss=loss, precision="float64")
    single = plain(Net, SGD, batches, loss=loss)
    for name, value in found.items():
        np.testing.assert_allclose(value, single[name], rtol=1e-5, atol=1e-5)


# -- optimizers -------------------------------------------------------------------------------------------


def _by_names(named: list[tuple[str, torch.Tensor]], lr: float = 0.1) -> torch.optim.Optimizer:
    own = dict(named)
    back = [own["back.weight"], own["back.bias"]]
    groups: list[dict[str, Any]] = [
        {"params": back, "lr": lr / 4, "weight_decay": 0.0},
        {"params": [own["head.weight"], own["head.bias"]]},
    ]
    return torch.optim.AdamW(groups, lr=lr, weight_decay=0.3)


def _of_biases(named: list[tuple[str, torch.Tensor]], lr: float = 0.1) -> torch.optim.Optimizer:
    groups = [[each for name, each in named if ("bias" in name) == chosen] for chosen in (True, False)]
    return torch.optim.SGD(
        [{"params": groups[0], "lr": lr / 2}, {"params": groups[1], "momentum": 0.5}], lr=lr
    )


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("groups", [_by_names, _of_biases])
def test_groups_of_parameters_have_settings_of_their_own(groups: Any, agents: int) -> None:
    """By the model's own names, which a trial on other tensors does not know."""
    found, batches, _ = trained(made(Net), d5.optimizers.TorchOptimizer(groups), agents=agents)
    names = [name for name, _ in Net().named_parameters()]
    check_same(found, plain(Net, lambda given: groups(list(zip(names, given, strict=True))), batches))


class Factor(torch.optim.SGD):
    """An optimizer of one's own, with an attribute that no group has."""

    def __init__(self, params: Any, lr: float = 0.1, factor: float = 1.0) -> None:
        super().__init__(params, lr=lr)
        self.factor = factor


class AnySettings(torch.optim.SGD):
    def __init__(self, params: Any, **settings: Any) -> None:
        super().__init__(params, **{"lr": 0.05, **settings})


def _done(rule: torch.optim.Optimizer, net: Net) -> torch.optim.Optimizer:
    torch.autograd.backward(net(torch.ones(2, 4)).sum())
    rule.step()
    rule.zero_grad()
    return rule


def _hooked(rule: torch.optim.Optimizer) -> torch.optim.Optimizer:
    rule.register_step_post_hook(lambda *_: None)
    return rule


NOT_TAKEN: dict[str, tuple[Callable[[Net], Any], str]] = {
    "a part of the parameters": (lambda net: torch.optim.SGD(net.head.parameters()), "'back.weight'"),
    "weights alone": (lambda net: torch.optim.SGD([net.back.weight, net.head.weight]), "'back.bias'"),
    "done steps": (lambda net: _done(SGD(net.parameters()), net), "done steps"),
    "a scheduler": (lambda net: OneCycleLR(SGD(net.parameters()), 1.0, 10).optimizer, "scheduler"),
    "hooks": (lambda net: _hooked(SGD(net.parameters())), "hooks"),
    "an attribute": (lambda net: Factor(net.parameters(), factor=3.0), "factor.*functools.partial"),
    "any settings": (lambda net: AnySettings(net.parameters(), lr=0.3), r"\*\*settings.*functools.partial"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_an_optimizer_is_taken_with_all_that_it_has_or_not_at_all(name: str) -> None:
    make, words = NOT_TAKEN[name]
    net = Net()
    with pytest.raises(ConfigurationError, match=words):
        d5.Experiment(net, samples(), make(net))


# -- what cannot be trained as PyTorch does ------------------------------------------------------------------


class TiedByData(Net):
    def prepare(self) -> None:
        self.again = nn.Linear(4, 6)
        self.again.weight = nn.Parameter(self.back.weight.data)


class BufferOverParameter(Net):
    def prepare(self) -> None:
        self.register_buffer("table", self.back.weight.data.t())


class ArrayOverParameter(Net):
    def prepare(self) -> None:
        self.table = self.back.weight.detach().numpy()


class Hidden(Net):
    """A view that only a function knows."""

    def prepare(self) -> None:
        weight = self.back.weight.detach()
        self.act = lambda hidden: torch.tanh(hidden) + weight.sum()


class HeadAlone(Net):
    def parameters(self, recurse: bool = True) -> Any:
        return self.head.parameters(recurse)


class Synchronized(Net):
    def prepare(self) -> None:
        self.norm = nn.SyncBatchNorm(6)


class Renormalizing(Net):
    def prepare(self) -> None:
        self.table = nn.Embedding(5, 6, max_norm=1.0)


class EighthBuffer(Net):
    def prepare(self) -> None:
        self.register_buffer("scale", torch.ones(6).to(torch.float8_e4m3fn))


class EighthParameter(Net):
    def prepare(self) -> None:
        self.scale = nn.Parameter(torch.ones(6).to(torch.float8_e5m2), requires_grad=False)


GLOBAL: Any = None


def _over_global(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return _penalized(GLOBAL, scores, labels)


@pytest.mark.parametrize("by_class", [False, True], ids=["instance", "class"])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (TiedByData, "'back.weight'.*'again.weight'"),
        (BufferOverParameter, "'back.weight'.*'table'"),
        (ArrayOverParameter, "'back.weight'.*'table'"),
        (Hidden, "'back.weight'.*clone"),
        (HeadAlone, "'back.weight'.*requires_grad_"),
        (Synchronized, "'norm'.*SyncBatchNorm"),
        (Renormalizing, "'table'.*max_norm.*DPSGD"),
        (EighthBuffer, "'scale'.*float8_e4m3fn.*uint8"),
        (EighthParameter, "'scale'.*float8_e5m2.*uint8"),
    ],
)
def test_what_would_differ_is_refused_by_name(kind: type[Net], words: str, by_class: bool) -> None:
    with pytest.raises(ConfigurationError, match=words):
        trained(kind if by_class else kind(), SGD, agents=2)


def test_a_loss_over_a_global_model_is_refused() -> None:
    """A function's globals are the program's, in which agents put nothing."""
    global GLOBAL
    GLOBAL = Net()
    given = d5.Experiment(GLOBAL, samples(), SGD, loss=_over_global, batch_size=4)
    with pytest.raises(ConfigurationError, match=r"'(head|back)\..*' of the model"):
        d5.simulate(given)
