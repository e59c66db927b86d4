"""Claims about types at PyTorch's border: complex numbers, single numbers, zeros that mean no gradient."""

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import d5ray as d5
from tests.distributed.forming import Former, on_all
from tests.plain_torch import check_same, plain, samples, trained


class Complex(nn.Module):
    """(batch, 4) to 3 scores by a product of complex numbers; one parameter of them is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.turn = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64).conj().t().contiguous().t())
        self.unused = nn.Parameter(torch.randn(2, dtype=torch.complex64))
        self.phase = nn.Parameter(torch.tensor(0.5 - 1j, dtype=torch.complex64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        turned = torch.tanh(self.first(inputs)).to(self.turn.dtype) @ self.turn * self.phase
        return turned.real + turned.abs()


def partial(name: str, **settings: Any) -> functools.partial[torch.optim.Optimizer]:
    return functools.partial(getattr(torch.optim, name), **settings)


OF_COMPLEX: dict[str, tuple[Any, Any]] = {
    "Adam": (d5.optimizers.Adam(0.02), partial("Adam", lr=0.02)),
    "RMSProp": (d5.optimizers.RMSProp(0.01), partial("RMSprop", lr=0.01)),
    "torch Adam": (partial("Adam", lr=0.02), partial("Adam", lr=0.02)),
}


@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("rule", OF_COMPLEX)
def test_complex_parameters_train_as_under_pytorch(rule: str, agents: int) -> None:
    """Whose rules treat them as pairs of real numbers; the model that is given out has complex ones."""
    own, of_torch = OF_COMPLEX[rule]
    found, batches, _ = trained(Complex, own, agents=agents)
    assert found["turn"].dtype == np.complex64 and found["turn"].shape == (4, 3)
    check_same(found, plain(Complex, of_torch, batches), tolerance=1e-4)


def test_a_run_keeps_complex_parameters(tmp_path: Any) -> None:
    """The model of a run has them, and a checkpoint brings them back bit for bit."""
    experiment = d5.Experiment(
        model=Complex, dataset=samples(), optimizer=d5.optimizers.Adam(0.02),
        agents=2, batch_size=4, epochs=9, recording=d5.metrics.Recording(monitor_seconds=0),
        events=(d5.events.Checkpoint(tmp_path, every_steps=3),),
    )  # fmt: skip
    with d5.simulate(experiment) as group:
        group.train(steps=5, progress=False)
        expected = group.model(0).state_dict()
    assert expected["turn"].dtype == torch.complex64
    with d5.simulate(experiment, resume=tmp_path / "step-00000003") as group:
        group.train(steps=2, progress=False)
        for name, tensor in group.model(0).state_dict().items():
            assert torch.equal(tensor, expected[name]), name


class OneNumber(nn.Module):
    """Has a parameter of no dimension, and an empty one."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(1.5))
        self.nothing = nn.Parameter(torch.zeros(0, 3))
        self.out = nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(self.gain * inputs)
        return scores


EVERY_RULE = [
    d5.optimizers.Muon(), d5.optimizers.LARS(0.1), d5.optimizers.LAMB(),
    d5.optimizers.Adafactor(0.01), d5.optimizers.Lion(0.01), d5.optimizers.AMSGrad(), d5.optimizers.NAdam(),
    d5.optimizers.AdaMax(), d5.optimizers.AcceleGrad(), d5.optimizers.LBFGS(0.1),
]  # fmt: skip


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: type(rule).__name__)
def test_every_rule_moves_a_single_number(rule: Any) -> None:
    """A parameter without dimensions as one with a single element, and none by an empty one."""

    class Vector(OneNumber):
        def __init__(self) -> None:
            super().__init__()
            self.gain = nn.Parameter(torch.tensor([1.5]))

    found, *_ = trained(OneNumber, rule, agents=2)
    other, *_ = trained(Vector, rule, agents=2)
    assert np.isfinite(found["gain"]) and found["gain"] != np.float32(1.5)
    check_same(found, other | {"gain": other["gain"].reshape(())}, tolerance=1e-6)


@pytest.mark.parametrize("backend", ["simulated", "shared_memory", "socket", "hierarchical"])
@pytest.mark.parametrize("kind", ["float32", "float64", "float16"])
def test_a_mean_of_negative_zeros_is_one(backend: str, kind: str, groups: Former) -> None:
    """By which agents know that none of them has a gradient; with any other number it is that number's."""
    members = groups.members(backend, 3)
    for size in (5, 100_003):
        own = [np.full(size, -0.0, kind) for _ in range(3)]
        own[1][1], own[2][2] = 0.0, 3.0

        def average(member: Any, own: Any = own) -> None:
            member.allreduce(own[member.rank], "mean")

        on_all(members, average)
        for values in own:
            assert np.signbit(values).sum() == size - 2 and values[1] == 0 and values[2] == 1
