"""The GPU path under PyTorch, as far as it can be followed without a GPU"""

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import d5ray as d5
from d5ray.agent.connections import Connections
from d5ray.agent.data import AgentData
from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.topologies.topology import Complete
from d5ray.distributed.wire.secret import Secret
from d5ray.distributed.world import RealWorld
from d5ray.errors import ConfigurationError
from d5ray.frameworks import torch as d5torch
from d5ray.frameworks.torch.library import Torch
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss


def test_the_generators_of_gpus_are_made_before_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch has none of them until CUDA is initialised."""
    made = torch.Generator()
    monkeypatch.setattr(torch.cuda, "default_generators", ())
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "init", lambda: setattr(torch.cuda, "default_generators", (made,)))
    assert Torch(torch.device("cuda")).generator is made


def test_a_group_of_one_takes_tensors_of_a_device() -> None:
    """Nobody is there to exchange with, so nothing is asked of where a tensor lies."""
    solo = backends.join("auto", Group("g", 0, 0, 1, Store("127.0.0.1", 1, Secret.new())), Complete(1))
    tensor = torch.empty(5, device="meta")
    solo.broadcast(tensor, root=0)
    solo.allreduce(tensor, "mean")
    solo.neighbor_average(tensor)


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is there")
def test_agents_on_gpus_without_cupy_are_refused_when_they_are_built() -> None:
    """By name, and before they wait for each other; one alone needs nobody to exchange with."""
    executor: Any = SimpleNamespace(parameters=torch.empty(3, device="meta"))
    given: dict[str, Any] = {"model": "lenet", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.1)}

    def connections(agents: int) -> Connections:
        wanted, data = d5.Experiment(**given, agents=agents), d5.datasets.load_dataset("digits")
        return Connections(wanted, 0, executor, AgentData(wanted, data, 0, threads=False), RealWorld())

    connections(agents=1)
    with pytest.raises(ConfigurationError, match=r"under PyTorch, needs CuPy.*d5ray\[cuda\].*CPUDevice"):
        connections(agents=2)


class Large(nn.Module):
    """It takes samples, and the device has no room for its output."""

    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.weight, self.error = nn.Parameter(torch.zeros(3)), error

    def forward(self, x: Any) -> Any:
        raise self.error("CUDA out of memory. Tried to allocate 20.00 GiB.")


def test_memory_that_runs_out_is_told_as_that() -> None:
    """And not as samples that the model does not take."""
    kwargs: dict[str, Any] = {"sample_shape": (3,), "classes": 2, "seed": 0, "threads": 1}
    for error in (torch.OutOfMemoryError, torch.AcceleratorError):
        with pytest.raises(error, match="out of memory"):
            d5torch.from_model(Large(error), {}, loss=SoftmaxCrossEntropyLoss(), **kwargs)
    with pytest.raises(ConfigurationError, match="does not take samples"):
        d5torch.from_model(Large(RuntimeError), {}, loss=SoftmaxCrossEntropyLoss(), **kwargs)
