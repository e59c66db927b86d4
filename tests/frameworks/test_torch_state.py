"""Claims about a module's state that is not trained, and its modes: as under plain PyTorch, and DDP."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import d5ray as d5
from d5ray.distributed.buffers import FromRankZero, SynchronizedBuffers
from tests.distributed.forming import Former, on_all
from tests.plain_torch import RULES, Act, check_same, plain, samples, trained

Tensor = torch.Tensor


class Drawn(nn.Module):
    """A module with tensors that NumPy draws, which no seed of PyTorch's reaches."""

    table: Tensor
    halves: Tensor
    doubles: Tensor
    order: Tensor
    mask: Tensor
    rotation: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)
        drawn = np.random.standard_normal((4, 4)).astype(np.float32)  # noqa: NPY002 - as users do
        order = torch.from_numpy(np.random.permutation(4))  # noqa: NPY002
        matrix = torch.from_numpy(drawn)
        self.frozen = nn.Parameter(matrix.t(), requires_grad=False)
        self.register_buffer("table", matrix.clone())
        self.register_buffer("halves", matrix.half())
        self.register_buffer("doubles", matrix.double(), persistent=False)
        self.register_buffer("order", order)
        self.register_buffer("mask", matrix > 0)
        self.register_buffer("rotation", torch.complex(matrix, -matrix).conj())

    def forward(self, inputs: Tensor) -> Tensor:
        turned = (inputs.to(self.rotation.dtype) @ self.rotation).real
        hidden = inputs[:, self.order] @ self.frozen + turned * self.mask[0]
        scores: Tensor = self.out(
            hidden + inputs @ self.table + self.halves.float() @ self.doubles.float()[0]
        )
        return scores


@pytest.mark.parametrize("real", [False, True], ids=["simulated", "real"])
def test_agents_begin_with_the_first_ones_whole_state(real: bool) -> None:
    """Parameters, frozen ones, buffers of every type: bit for bit on all, though each has drawn its own."""
    seen: list[dict[str, Any]] = []

    def look(module: nn.Module, step: int) -> None:
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        seen.append({name: each.detach().resolve_conj().numpy().copy() for name, each in tensors.items()})

    trained(Drawn, RULES["SGD"][0], agents=3, steps=1, act=look, real=real)
    assert len(seen) == 3 and np.abs(seen[0]["frozen"]).sum() > 0 and len(seen[0]) == 9
    for name, value in seen[0].items():
        assert {each[name].tobytes() for each in seen} == {value.tobytes()}, name


def drawn_run(**changes: Any) -> d5.Experiment:
    return d5.Experiment(
        Drawn, samples(48), RULES["SGD"][0], agents=3, batch_size=4, seed=5, evaluate=False, epochs=9,
        recording=d5.metrics.Recording(warmup_steps=0), **changes,
    )  # fmt: skip


def bits_of(group: Any) -> list[dict[str, bytes]]:
    """The bits of every tensor of all agents' models, by name."""
    return [
        {name: each.resolve_conj().numpy().tobytes() for name, each in group.state_dict(rank).items()}
        for rank in range(3)
    ]


@pytest.mark.parametrize("rule", [d5.optimizers.AllreduceSGD(), d5.optimizers.ParameterServerSGD()], ids=repr)
def test_who_goes_on_from_a_checkpoint_has_what_is_frozen_there(rule: Any, tmp_path: Path) -> None:
    """Though the model has drawn it anew when it was made again; on all agents, and to the bit."""
    wanted = drawn_run(distributed=rule)
    with d5.simulate(replace(wanted, events=(d5.events.Checkpoint(tmp_path, every_steps=2),))) as group:
        group.train(steps=4, progress=False)
        first = bits_of(group)
    np.random.standard_normal()  # noqa: NPY002 - another program draws others
    with d5.simulate(wanted, resume=tmp_path / "step-00000002") as group:
        group.train(steps=2, progress=False)
        assert bits_of(group) == first


LATE = {
    "ASGD": (d5.optimizers.ASGD(), None),
    "AD-PSGD": (d5.optimizers.ADPSGD(), d5.topologies.Ring(3)),
}


@pytest.mark.parametrize(
    "real", [False, pytest.param(True, marks=pytest.mark.full)], ids=["simulated", "real"]
)
@pytest.mark.parametrize("rule", LATE)
def test_who_joins_late_has_the_others_untrained_state(rule: str, real: bool) -> None:
    """Frozen parameters and buffers of every type, to the bit, by servers and by windows."""
    distributed, topology = LATE[rule]
    seconds = 1.0 if real else 0.005
    wanted = drawn_run(
        distributed=distributed, topology=topology, elastic=d5.faults.Elasticity(d5.faults.Late(2, seconds)),
        slow=(d5.faults.Slowdown(agent=0, factor=300),) if real else (),
    )  # fmt: skip
    started: Any = d5.launch(wanted, quiet=True) if real else d5.simulate(wanted)
    with started as group:
        group.train(steps=36 if real else 30, progress=False)
        found = bits_of(group)
        events = group.tables()["events"].to_pylist()
    assert any(each["name"] == "joined" and each["rank"] == 2 and each["step"] > 0 for each in events)
    for name in ("frozen", "table", "halves", "order", "mask", "rotation"):
        assert len({each[name] for each in found}) == 1, name


def test_frozen_parameters_that_differ_later_are_found() -> None:
    """The comparison of agents that train one model covers what is not trained."""

    def spoil(module: nn.Module, step: int) -> None:
        if step == 2 and not spoilt:
            spoilt.append(step)
            with torch.no_grad():
                module.get_parameter("frozen")[0, 0] += 1

    spoilt: list[int] = []
    with pytest.raises(d5.D5Error, match="parameters differ after step 5"):
        trained(Drawn, RULES["SGD"][0], agents=3, steps=5, act=spoil)


# -- buffers ----------------------------------------------------------------------------------------------


class Centred(nn.Module):
    """Its passes subtract a running mean that they change, and count."""

    mean: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, 3)
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("constant", torch.full((2,), torch.finfo(torch.float32).min))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.5 * self.mean + inputs.detach().mean(0)
            self.count += 1
        scores: Tensor = self.out(self.norm(inputs) - self.mean)
        return scores


class Late(Centred):
    """Its passes begin after some steps to change what they read; its evaluations change something else."""

    evaluations: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.register_buffer("evaluations", torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        self.steps += self.training
        if not self.training:
            self.evaluations.add_(1)
        if self.training and self.steps > 3:
            self.mean = 0.5 * self.mean + inputs.detach().mean(0)
        if self.training and self.steps > 4 and self.counts(inputs):
            self.count += int((inputs > 0).sum())
        scores: Tensor = self.out(self.norm(inputs) - self.mean + 0.1 * self.count)
        return scores

    def counts(self, inputs: Tensor) -> bool:
        return True


class OwnAssignment(Centred):
    """A module's own `__setattr__` may keep something else than what is assigned."""

    def __setattr__(self, name: str, value: Any) -> None:
        plain_tensor = isinstance(value, Tensor) and not isinstance(value, nn.Parameter)
        super().__setattr__(name, value.clone() if plain_tensor else value)


def freeze_for_a_while(module: nn.Module, step: int) -> None:
    module.get_submodule("norm").train(not 2 <= step < 5)


WEIGHTS = ("mean", "out.weight", "norm.weight")
READ: dict[str, tuple[type[Centred], Act | None, tuple[str, ...]]] = {
    "from the first": (Centred, None, (*WEIGHTS, "count", "constant", "norm.num_batches_tracked")),
    "later": (Late, None, (*WEIGHTS, "count")),
    "whatever assigning does": (OwnAssignment, None, WEIGHTS),
    "frozen for a while": (Centred, freeze_for_a_while, (*WEIGHTS, "norm.num_batches_tracked")),
}


@pytest.mark.parametrize("evaluated", [False, True], ids=["alone", "evaluated"])
@pytest.mark.parametrize("real", [False, True], ids=["simulated", "real"])
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("which", READ)
def test_buffers_that_passes_read_are_those_of_ddp(
    which: str, agents: int, real: bool, evaluated: bool
) -> None:
    """The first agent's before every step, also where passes begin to change or to read them later.

    An evaluation in the midst of training changes nothing, and is no training pass.
    """
    module, act, names = READ[which]
    options: dict[str, Any] = {"evaluate": evaluated, "epochs": 4, "batch_size": 4}
    own, of_torch = RULES["momentum"]
    found, batches, _ = trained(module, own, agents=agents, steps=8, real=real, act=act, **options)
    expected = plain(module, of_torch, batches, act=act)
    check_same({name: found[name] for name in names}, {name: expected[name] for name in names})


class RegisteredLate(Centred):
    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = super().forward(inputs)
        if hasattr(self, "late") and self.training:
            self.get_buffer("late").add_(scores.detach().mean(0))
        return scores


def test_a_buffer_that_is_registered_later_is_refused_by_name_where_passes_change_it() -> None:
    """Several agents exchange what is there when they begin; one agent trains with it as PyTorch does."""

    def act(module: nn.Module, step: int) -> None:
        if step == 2:
            module.register_buffer("late", torch.zeros(3))

    own, of_torch = RULES["momentum"]
    found, batches, _ = trained(RegisteredLate, own, act=act)
    check_same({"late": found["late"]}, {"late": plain(RegisteredLate, of_torch, batches, act=act)["late"]})
    with pytest.raises(d5.D5Error, match="buffer 'late' was registered in training"):
        trained(RegisteredLate, own, agents=3, act=act)


class LateOnSome(Late):
    def counts(self, inputs: Tensor) -> bool:
        return bool(inputs[0, 0] > 0)


def test_a_buffer_that_begins_to_change_on_some_agents_is_refused_by_name() -> None:
    with pytest.raises(d5.D5Error, match=r"buffer 'count' began to change before step.*adding 0"):
        trained(LateOnSome, RULES["momentum"][0], agents=3, steps=12)


class Ordinary(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3))


def test_running_statistics_do_not_depend_on_how_often_is_evaluated() -> None:
    """Those that are given out at the end are the mean of the agents' own, as each of them gathered it."""
    found = []
    for epochs_evaluated in (False, True):
        data = samples()
        experiment = d5.Experiment(
            model=Ordinary, dataset=data, optimizer=d5.optimizers.SGD(0.1), agents=3, batch_size=4, epochs=4,
            recording=d5.metrics.Recording(monitor_seconds=0), evaluate=True,
        )  # fmt: skip
        with d5.simulate(experiment) as group:
            for _ in range(4 if epochs_evaluated else 1):
                group.train(epochs=1 if epochs_evaluated else 4, progress=False)
            found.append({name: each.numpy() for name, each in group.model(0).state_dict().items()})
            group.train(steps=1, progress=False)
    check_same(found[0], found[1], tolerance=0)


PATTERNS = np.array([-0.0, 1e-45, np.nan, -np.inf, np.finfo(np.float32).min, 0.1, 3.0], np.float32)


@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
@pytest.mark.parametrize("policy", [SynchronizedBuffers(), FromRankZero()], ids=repr)
@pytest.mark.parametrize("backend", ["simulated", "shared_memory", "socket"])
def test_bits_that_agree_on_all_agents_stay(backend: str, policy: Any, kind: str, groups: Former) -> None:
    """Negative zero, denormal numbers, not a number, the smallest; what differs is averaged beside them."""
    payload = np.array([0x7FC00123], np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        same = np.concatenate([PATTERNS, payload]).astype(kind)
    own = [np.append(same, np.asarray(rank, kind)) for rank in range(3)]
    members = groups.members(backend, 3)
    on_all(members, lambda member: policy.settle(member, torch.from_numpy(own[member.rank]), ()))
    for values in own:
        assert values[:-1].tobytes() == same.tobytes()
        assert values[-1] == (1.0 if policy == SynchronizedBuffers() else 0.0)


# -- modes ------------------------------------------------------------------------------------------------


class Watched(nn.Module):
    """Two layers with Dropout and BatchNorm, which note the modes they are called in."""

    def __init__(self) -> None:
        super().__init__()
        self.back = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.0))
        self.head = nn.Linear(8, 3)
        self.modes: list[tuple[bool, bool, bool]] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.modes.append((self.training, self.back.training, torch.is_grad_enabled()))
        scores: Tensor = self.head(self.back(inputs))
        return scores


class FrozenBackbone(Watched):
    def __init__(self) -> None:
        super().__init__()
        self.back.eval()


class KeepsBackboneFrozen(Watched):
    def train(self, mode: bool = True) -> "KeepsBackboneFrozen":
        super().train(mode)
        self.back.eval()
        return self


def evaluated(made: nn.Module) -> nn.Module:
    return made.eval()


MODES: dict[str, tuple[Any, bool]] = {
    "a class": (Watched, True),
    "in training mode": (Watched(), True),
    "in evaluation mode": (evaluated(Watched()), True),
    "made in evaluation mode": (lambda: evaluated(Watched()), True),
    "partly in evaluation mode": (FrozenBackbone, False),
    "with a train() of its own": (KeepsBackboneFrozen().train(), False),
}


@pytest.mark.parametrize("mode", MODES)
def test_passes_are_in_the_modes_of_plain_pytorch(mode: str) -> None:
    """Training in training mode, but for parts that are not; also after evaluations. An event says so."""
    module, back = MODES[mode]
    kept: list[Any] = []

    def keep(each: nn.Module, step: int) -> None:
        kept[:] = [each]

    trained(module, RULES["SGD"][0], agents=2, steps=7, act=keep, evaluate=True)
    assert kept[0].modes.count((True, back, True)) == 7
    assert kept[0].modes.count((False, False, False)) >= 2
    assert len(kept[0].modes) == kept[0].modes.count((False, False, False)) + 7


def test_an_event_says_that_a_model_was_in_evaluation_mode() -> None:
    """One of every agent, and none for others."""
    for module, expected in ((evaluated(Watched()), 2), (Watched(), 0), (FrozenBackbone(), 0)):
        experiment = d5.Experiment(
            model=module, dataset=samples(), optimizer=d5.optimizers.SGD(0.1), agents=2, batch_size=4,
            recording=d5.metrics.Recording(monitor_seconds=0),
        )  # fmt: skip
        with d5.simulate(experiment) as group:
            group.train(steps=1, progress=False)
            names = group.tables()["events"]["name"].to_pylist()
        assert names.count("model_changed") == expected


class Table(nn.Module):
    """Keeps a table that it makes in its first pass, whatever the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.out = nn.Linear(4, 3)
        self.table: Tensor | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        if self.table is None:
            self.table = torch.arange(4, dtype=inputs.dtype) + inputs.mean()
        scores: Tensor = self.out(inputs + self.scale * self.table)
        return scores


class Forces(nn.Module):
    """Gives the derivative of an energy, so that every pass differentiates."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        place = inputs.detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.energy(place).sum(), place, create_graph=True)
        return slope[:, :3]


class OwnGradients(Forces):
    def forward(self, inputs: Tensor) -> Tensor:
        with torch.enable_grad():
            return super().forward(inputs)


class Lazy(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.LazyLinear(6), nn.LazyBatchNorm1d(), nn.Tanh(), nn.Linear(6, 3))


@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("module", [Table, Forces, OwnGradients, Lazy, Ordinary])
@pytest.mark.parametrize("agents", [1, 3])
def test_first_passes_and_surroundings_do_not_matter(
    module: Callable[[], nn.Module], agents: int, around: Any
) -> None:
    """Evaluated before, between and after; under `no_grad` too the training is that of plain PyTorch."""
    own, of_torch = RULES["momentum"]
    with around():
        found, batches, _ = trained(module, own, agents=agents, steps=7, evaluate=True)
    with torch.enable_grad():
        torch.manual_seed(5)
        first = module()
        if module is Lazy:
            first.eval()(torch.zeros(2, 4))
        expected = plain(first.train(), of_torch, batches)
    names = [name for name in expected if "running" not in name]  # averaged, and not the first one's
    check_same({name: found[name] for name in names}, {name: expected[name] for name in names})


def test_a_model_of_doubles_is_refused_with_the_reason() -> None:
    """Samples are float32, which it does not take; and with precision='float64' it is trained."""
    module = Ordinary().double()
    with pytest.raises(d5.D5Error, match=r"torch\.float64.*samples are torch\.float32.*precision='float64'"):
        trained(module, RULES["SGD"][0])
    found, *_ = trained(module, RULES["SGD"][0], precision="float64")
    assert found["0.weight"].dtype == np.float64
