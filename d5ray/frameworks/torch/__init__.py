"""PyTorch. `from_model` makes the executor of a network; importing this does not import torch."""

from typing import TYPE_CHECKING, Any

from d5ray.networks.device import CPUDevice, Device
from d5ray.networks.layers import Shape
from d5ray.operators.loss import Loss

if TYPE_CHECKING:
    from d5ray.frameworks.torch.executor import TorchExecutor


def from_model(
    model: Any,
    model_kwargs: dict[str, Any],
    *,
    sample_shape: Shape,
    classes: int,
    loss: Loss,
    seed: int,
    threads: int,
    device: Device = CPUDevice(),  # noqa: B008 - frozen data
) -> "TorchExecutor":
    """An executor of `model`: a name of the catalogue, a class or function that gives an `nn.Module`, or one.

    Called on the agent. The same seed gives the same initial parameters on every agent.
    Raises `ConfigurationError` if the model's output does not fit the loss.
    """
    from d5ray.frameworks.torch import build  # noqa: PLC0415 - imports torch

    module = build.module(model, model_kwargs, sample_shape, classes, seed=seed, threads=threads)
    made = build.executor(module, sample_shape, classes, loss, device)
    made.draw_from(seed, rank=0)
    return made


def load() -> None:
    """Import everything the executor needs, so that an agent can do it while others still start."""
    from d5ray.frameworks.torch import build, process_group  # noqa: F401, PLC0415 - imports torch
