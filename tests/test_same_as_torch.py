"""Every kind of PyTorch module beside plain PyTorch: one agent, several, simulated and real; or refused"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint

import d5ray as d5
from d5ray.errors import ValidationError
from d5ray.testing import same_as_torch
from tests.plain_torch import CLASSES, TwoLayers

CROSS_ENTROPY = nn.functional.cross_entropy
SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1)
ADAMW = functools.partial(torch.optim.AdamW, lr=0.02, weight_decay=0.2)
VECTOR, SEQUENCE, IMAGE, VOLUME, TOKENS = (8,), (5, 8), (4, 6, 6), (4, 4, 4, 4), (5,)
Shape = tuple[int, ...]
Make = Callable[[], nn.Module]


def data(shape: Shape) -> d5.Dataset:
    rng = np.random.default_rng(3)
    inputs: Any = rng.standard_normal((60, *shape)).astype(np.float32)
    if shape == TOKENS:
        inputs = rng.integers(0, 11, (60, *shape))
    labels = rng.integers(0, CLASSES, 60)
    return d5.from_arrays(inputs[:48], labels[:48], test=(inputs[48:], labels[48:]), classes=CLASSES)


class Scored(nn.Module):
    """A part, and a linear layer on all that it gives."""

    def __init__(
        self, part: nn.Module, shape: Shape, take: Callable[[Any], Any] = lambda found: found
    ) -> None:
        super().__init__()
        self.part, self.take = part, take
        given = torch.zeros((2, *shape), dtype=torch.int64 if shape == TOKENS else torch.float32)
        part.eval()
        with torch.no_grad():
            self.head = nn.Linear(take(part(given)).flatten(1).shape[1], CLASSES)
        part.train()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.take(self.part(inputs)).flatten(1))
        return scores


def of(shape: Shape, *parts: Callable[[], nn.Module], take: Any = lambda found: found) -> tuple[Shape, Make]:
    return shape, lambda: Scored(nn.Sequential(*(part() for part in parts)), shape, take)


class Own(TwoLayers):
    """What the modules below have in common."""

    sizes = (8, 8)


class Branching(Own):
    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            hidden = torch.relu(hidden) if hidden.sum() > 0 else torch.tanh(self.back(hidden))
        return hidden


class Tied(Own):
    def prepare(self) -> None:
        self.again = nn.Linear(8, 8)
        self.again.weight = self.back.weight

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.again(torch.tanh(hidden))  # type: ignore[no-any-return]


class Shared(Own):
    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.back(torch.tanh(self.back(hidden))))


class Frozen(Own):
    def prepare(self) -> None:
        self.back.requires_grad_(False)


class Released(Own):
    """Whose first layer is trained from the third pass on, as its optimizer knows from the start."""

    def prepare(self) -> None:
        self.passes = 0
        self.back.weight.requires_grad_(False)

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        self.back.weight.requires_grad_(self.passes > 2)
        return torch.tanh(hidden)


class Unused(Own):
    def prepare(self) -> None:
        self.spare = nn.Linear(4, 4)


class Buffers(Own):
    """Buffers of all types: constants, a counter, a mean that passes read, a complex one, one not kept."""

    count: torch.Tensor
    seen: torch.Tensor
    scratch: torch.Tensor

    def prepare(self) -> None:
        self.register_buffer("mask", torch.tensor([0.0, torch.finfo(torch.float32).min]))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("seen", torch.zeros(8))
        self.register_buffer("flags", torch.tensor([True, False]))
        self.register_buffer("wave", torch.tensor([1j, 2.0]))
        self.register_buffer("halves", torch.tensor([0.1, 60000.0], dtype=torch.float16))
        self.register_buffer("scratch", torch.ones(8), persistent=False)

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.seen = 0.9 * self.seen + 0.1 * hidden.detach().mean(dim=0)
        return torch.tanh(hidden - self.seen) * self.scratch


class Clamped(Own):
    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        self.back.weight.data = self.back.weight.data.clamp(-0.2, 0.2)
        return torch.tanh(hidden)


class Hooked(Own):
    def prepare(self) -> None:
        self.back.register_forward_hook(lambda _, __, found: 2 * found)
        self.head.weight.register_hook(lambda slope: 0.5 * slope)  # type: ignore[no-untyped-call]


class Checkpointed(Own):
    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: torch.tanh(self.back(x)), hidden, use_reentrant=False)  # type: ignore[no-any-return]


class Reentrant(Own):
    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return checkpoint(lambda x: torch.tanh(self.back(x)), hidden, use_reentrant=True)  # type: ignore[no-any-return]


class Forces(nn.Module):
    """Whose pass differentiates, as models of molecules do."""

    def __init__(self) -> None:
        super().__init__()
        self.energy, self.head = (
            nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)),
            nn.Linear(8, CLASSES),
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            inputs = inputs.requires_grad_(True)
            (force,) = torch.autograd.grad(self.energy(inputs).sum(), inputs, create_graph=True)
        return self.head(force)  # type: ignore[no-any-return]


class Scalar(Own):
    def prepare(self) -> None:
        self.gain = nn.Parameter(torch.tensor(1.5))

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.gain * torch.tanh(hidden)


class Complex(Own):
    def prepare(self) -> None:
        self.turn = nn.Parameter(torch.randn(8, dtype=torch.complex64))

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(hidden * self.turn).sum(-1)


class Drawing(Own):
    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.tanh(hidden + 0.1 * torch.randn_like(hidden)) if self.training else torch.tanh(hidden)


def changed(change: Callable[[Any], Any]) -> tuple[Shape, Make]:
    """Two layers after a change by one of PyTorch's utilities."""

    def make() -> nn.Module:
        made = Own()
        return change(made) or made

    return VECTOR, make


def symmetric(net: Own) -> None:
    parametrize.register_parametrization(net.back, "weight", _Symmetric())


def _untracked() -> nn.Module:
    return nn.BatchNorm1d(6, track_running_stats=False)


def halved(net: Own) -> None:
    prune.l1_unstructured(net.back, "weight", 0.5)  # type: ignore[no-untyped-call]


def evaluated() -> nn.Module:
    return Scored(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.3)), VECTOR).eval()


def frozen_norm() -> nn.Module:
    made = Scored(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)), VECTOR)
    made.part[1].eval()  # type: ignore[index]
    return made


FIRST: Any = lambda found: found[0]  # noqa: E731 - of what recurrent layers and attention give
MODULES: dict[str, tuple[Shape, Make]] = {
    "Linear": of(VECTOR, lambda: nn.Linear(8, 5)),
    "without a bias": of(VECTOR, lambda: nn.Linear(8, 5, bias=False)),
    "Bilinear": (VECTOR, lambda: _Twice(nn.Bilinear(8, 8, CLASSES))),
    "Conv1d": of(SEQUENCE, lambda: nn.Conv1d(5, 4, 3)),
    "Conv2d": of(IMAGE, lambda: nn.Conv2d(4, 4, 3, stride=2, groups=2)),
    "Conv2d circular": of(IMAGE, lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")),
    "Conv3d": of(VOLUME, lambda: nn.Conv3d(4, 3, 2)),
    "ConvTranspose1d": of(SEQUENCE, lambda: nn.ConvTranspose1d(5, 4, 3)),
    "ConvTranspose2d": of(IMAGE, lambda: nn.ConvTranspose2d(4, 3, 3, stride=2)),
    "channels last": of(IMAGE, lambda: nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)),  # type: ignore[call-overload]
    "BatchNorm1d": of(VECTOR, lambda: nn.Linear(8, 6), lambda: nn.BatchNorm1d(6)),
    "BatchNorm2d": of(IMAGE, lambda: nn.Conv2d(4, 4, 3), lambda: nn.BatchNorm2d(4), nn.ReLU),
    # By rules that divide by a gradient's size: the bias before a normalization has none but rounding.
    "BatchNorm2d after no bias": of(
        IMAGE, lambda: nn.Conv2d(4, 4, 3, bias=False), lambda: nn.BatchNorm2d(4), nn.ReLU
    ),
    "BatchNorm3d": of(VOLUME, lambda: nn.BatchNorm3d(4)),
    "BatchNorm cumulative": of(VECTOR, lambda: nn.Linear(8, 6), lambda: nn.BatchNorm1d(6, momentum=None)),
    "BatchNorm untracked": of(VECTOR, lambda: nn.Linear(8, 6), _untracked),
    "InstanceNorm2d": of(IMAGE, lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True)),
    "LayerNorm": of(SEQUENCE, lambda: nn.LayerNorm(8)),
    "GroupNorm": of(IMAGE, lambda: nn.GroupNorm(2, 4)),
    "RMSNorm": of(SEQUENCE, lambda: nn.RMSNorm(8)),
    "LocalResponseNorm": of(IMAGE, lambda: nn.Conv2d(4, 4, 3), lambda: nn.LocalResponseNorm(2)),
    "RNN": of(SEQUENCE, lambda: nn.RNN(8, 6, batch_first=True), take=FIRST),
    "LSTM": of(SEQUENCE, lambda: nn.LSTM(8, 6, batch_first=True, num_layers=2), take=FIRST),
    "GRU": of(SEQUENCE, lambda: nn.GRU(8, 6, batch_first=True, bidirectional=True), take=FIRST),
    "Embedding": of(TOKENS, lambda: nn.Embedding(11, 4)),
    "Embedding with padding": of(TOKENS, lambda: nn.Embedding(11, 4, padding_idx=0)),
    "EmbeddingBag": of(TOKENS, lambda: nn.EmbeddingBag(11, 4)),
    "sparse gradients": of(TOKENS, lambda: nn.EmbeddingBag(11, 4, sparse=True)),
    "MultiheadAttention": (SEQUENCE, lambda: _Attending()),
    "TransformerEncoder": of(
        SEQUENCE, lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    ),
    "Dropout": of(VECTOR, lambda: nn.Linear(8, 16), lambda: nn.Dropout(0.4)),
    "Dropout2d": of(IMAGE, lambda: nn.Conv2d(4, 4, 3), lambda: nn.Dropout2d(0.4)),
    "AlphaDropout": of(VECTOR, lambda: nn.Linear(8, 16), nn.SELU, lambda: nn.AlphaDropout(0.3)),
    "RReLU": of(VECTOR, lambda: nn.Linear(8, 16), nn.RReLU),
    "PReLU": of(VECTOR, lambda: nn.Linear(8, 6), lambda: nn.PReLU(6)),
    "GELU, SiLU, Mish": of(VECTOR, lambda: nn.Linear(8, 8), nn.GELU, nn.SiLU, nn.Mish),
    "GLU": of(VECTOR, lambda: nn.Linear(8, 8), nn.GLU),
    "MaxPool2d": of(IMAGE, lambda: nn.Conv2d(4, 4, 3), lambda: nn.MaxPool2d(2)),
    "AvgPool2d": of(IMAGE, lambda: nn.Conv2d(4, 4, 3), lambda: nn.AvgPool2d(2)),
    "AdaptiveAvgPool2d": of(IMAGE, lambda: nn.Conv2d(4, 8, 3), lambda: nn.AdaptiveAvgPool2d(1)),
    "PixelShuffle": of(IMAGE, lambda: nn.Conv2d(4, 4, 3), lambda: nn.PixelShuffle(2)),
    "Upsample": of(IMAGE, lambda: nn.Upsample(scale_factor=2, mode="bilinear"), lambda: nn.Conv2d(4, 2, 3)),
    "Softmax": of(VECTOR, lambda: nn.Linear(8, 6), lambda: nn.Softmax(dim=-1)),
    "loops and branches": (VECTOR, Branching),
    "tied": (VECTOR, Tied),
    "shared": (VECTOR, Shared),
    "frozen": (VECTOR, Frozen),
    "released": (VECTOR, Released),
    "unused": (VECTOR, Unused),
    "buffers of all types": (VECTOR, Buffers),
    "values put anew": (VECTOR, Clamped),
    "hooks": (VECTOR, Hooked),
    "checkpointed": (VECTOR, Checkpointed),
    "re-entrant": (VECTOR, Reentrant),
    "differentiates itself": (VECTOR, Forces),
    "scalar parameter": (VECTOR, Scalar),
    "complex parameter": (VECTOR, Complex),
    "draws": (VECTOR, Drawing),
    "ParameterList": (VECTOR, lambda: _Listed(nn.ParameterList(torch.randn(8, 8) for _ in range(2)))),
    "ParameterDict": (VECTOR, lambda: _Listed(nn.ParameterDict({k: torch.randn(8, 8) for k in "ba"}))),
    "lazy": (VECTOR, lambda: nn.Sequential(nn.LazyLinear(6), nn.Tanh(), nn.LazyLinear(CLASSES))),
    "in evaluation mode": (VECTOR, evaluated),
    "BatchNorm in evaluation mode": (VECTOR, frozen_norm),
    "weight norm": changed(lambda net: parametrizations.weight_norm(net.back) and None),
    "spectral norm": changed(lambda net: parametrizations.spectral_norm(net.back) and None),
    "orthogonal": changed(lambda net: parametrizations.orthogonal(net.back) and None),
    "parametrized": changed(symmetric),
    "pruned": changed(halved),
    "scripted": changed(lambda net: torch.jit.script(nn.Sequential(net.back, nn.Tanh(), net.head))),
    "DataParallel on a processor": changed(lambda net: nn.DataParallel(net)),
}  # fmt: skip


class _Twice(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(inputs, inputs)  # type: ignore[no-any-return]


class _Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(40, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.attention(inputs, inputs, inputs)[0].flatten(1))  # type: ignore[no-any-return]


class _Listed(nn.Module):
    def __init__(self, weights: Any) -> None:
        super().__init__()
        self.weights, self.head = weights, nn.Linear(8, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for each in self.weights.parameters():
            inputs = torch.tanh(inputs @ each)
        return self.head(inputs)  # type: ignore[no-any-return]


class _Symmetric(nn.Module):
    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.triu() + weight.triu(1).T


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # re-entrant, evaluated
@pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated", "ignore:The .grad attribute of a Tensor"
)
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("name", MODULES)
def test_agents_train_a_module_as_pytorch_does(name: str, agents: int) -> None:
    """Losses, parameters and buffers of every step, by a rule with momentum and decay."""
    shape, make = MODULES[name]
    torch.manual_seed(1)
    module: Any = make if name in ("pruned", "scripted") else make()  # PyTorch copies these not
    rule = (
        functools.partial(torch.optim.SGD, lr=0.1) if "sparse" in name else SGD
    )  # which PyTorch's others refuse
    assert same_as_torch(module, data(shape), CROSS_ENTROPY, rule, agents=agents) < 1e-5


@pytest.mark.parametrize(
    "name",
    [
        "unused",
        "buffers of all types",
        "draws",
        "complex parameter",
        "LayerNorm",
        "BatchNorm2d after no bias",
    ],
)
@pytest.mark.parametrize("optimizer", [ADAMW, torch.optim.RMSprop, torch.optim.NAdam])
def test_rules_of_pytorch_are_taken(optimizer: Any, name: str) -> None:
    shape, make = MODULES[name]
    torch.manual_seed(1)
    same_as_torch(make(), data(shape), nn.CrossEntropyLoss(), optimizer, agents=2)


def _in_groups(named: list[tuple[str, torch.Tensor]], lr: float = 0.1) -> torch.optim.Optimizer:
    """Biases without decay, and the head with a rate of its own."""
    own = dict(named)
    biases = [own.pop(name) for name in list(own) if name.endswith("bias")]
    head = [own.pop(name) for name in list(own) if name.startswith("head")]
    groups: list[dict[str, Any]] = [{"params": list(own.values())}, {"params": biases, "weight_decay": 0.0}]
    return torch.optim.AdamW([*groups, {"params": head, "lr": lr / 5}], lr=lr, weight_decay=0.3)


@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("name", ["tied", "unused", "scalar parameter"])
def test_groups_of_parameters_are_made_by_their_names(name: str, agents: int) -> None:
    rule = d5.optimizers.TorchOptimizer(_in_groups)
    same_as_torch(MODULES[name][1](), data(VECTOR), CROSS_ENTROPY, rule, agents=agents)


class CompiledInParts(Own):
    def prepare(self) -> None:
        self.back.compile(backend="eager")
        self.act = torch.compile(lambda hidden: torch.tanh(self.head.weight.mean() + hidden), backend="eager")

    def between(self, hidden: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.act(hidden)
        return found


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("kind", ["whole", "in parts"])
def test_compiled_modules_are_trained(kind: str, agents: int) -> None:
    """Their code is traced, and computed by the backend that takes no compiler of C++."""

    def make() -> Any:
        return torch.compile(Tied(), backend="eager") if kind == "whole" else CompiledInParts()

    same_as_torch(make, data(VECTOR), CROSS_ENTROPY, SGD, agents=agents)


def test_a_class_is_made_with_the_seed() -> None:
    same_as_torch(Tied, data(VECTOR), CROSS_ENTROPY, SGD, agents=2, seed=7)


def test_every_pass_of_every_agent_draws_other_numbers() -> None:
    """Of two agents and three steps; plain PyTorch draws them a second time."""
    drawn = []

    class Remembering(Own):
        def between(self, hidden: torch.Tensor) -> torch.Tensor:
            if self.training:
                drawn.append(torch.rand(()).item())
            return torch.tanh(hidden)

    same_as_torch(Remembering(), data(VECTOR), CROSS_ENTROPY, SGD, agents=2, steps=3)
    assert len(drawn) == 12
    assert len(set(drawn)) == 6


@pytest.mark.full
def test_real_agents_train_as_pytorch_does() -> None:
    """With batch normalization and dropout, in processes of their own."""
    shape, make = of(VECTOR, lambda: nn.Linear(8, 8), lambda: nn.BatchNorm1d(8), lambda: nn.Dropout(0.2))
    same_as_torch(make(), data(shape), CROSS_ENTROPY, SGD, agents=2, launched=True)


def test_what_differs_is_found() -> None:
    """A module whose passes depend on something else than its tensors and generators."""

    class Counting(Own):
        passes = 0

        def between(self, hidden: torch.Tensor) -> torch.Tensor:
            Counting.passes += 1
            return torch.tanh(hidden) * Counting.passes

    with pytest.raises(ValidationError, match="PyTorch"):
        same_as_torch(Counting(), data(VECTOR), CROSS_ENTROPY, SGD)


class OfParts(Own):
    """Takes two arrays by their names, and computes in bfloat16, the type of its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.bfloat16()

    def forward(self, one: Any, other: Any) -> torch.Tensor:  # type: ignore[override]
        return super().forward((one - other).bfloat16())


def test_modules_of_bfloat16_and_of_several_inputs_are_compared() -> None:
    random = np.random.default_rng(0)

    def arrays(count: int) -> Any:
        inputs = {name: random.standard_normal((count, *VECTOR)) for name in ("one", "other")}
        return inputs, random.integers(CLASSES, size=count)

    given = d5.from_arrays(*arrays(24), test=arrays(4), classes=CLASSES)
    rule = functools.partial(torch.optim.SGD, lr=0.1)
    for agents in (1, 2):
        same_as_torch(OfParts(), given, CROSS_ENTROPY, rule, agents=agents, tolerance=2e-2)
