"""JAX on one device: its threads, and in which types it computes"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import jax

from d5ray.errors import ConfigurationError
from d5ray.networks.device import BestDevice, Device, GPUDevice


@final
class Computing:
    """The settings of JAX while an executor computes; those of the process stay what they are.

    double: float64 is there. Products of float32 are of float32, also on GPUs, where JAX takes TF32 for them.
    """

    def __init__(self, device: Device, *, double: bool) -> None:
        self.device, self._double = chosen(device), double

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with (
            jax.enable_x64(self._double),
            jax.default_device(self.device),
            jax.default_matmul_precision("highest"),
        ):
            yield


def chosen(device: Device) -> Any:
    """JAX's device. Raises `ConfigurationError` for a GPU where JAX finds none."""
    gpus = _gpus()
    if isinstance(device, BestDevice):
        device = device.chosen(len(gpus))
    if not isinstance(device, GPUDevice):
        return jax.devices("cpu")[0]
    if device.index >= len(gpus):
        raise ConfigurationError(
            f"the device is {device}, but JAX finds {len(gpus) or 'no'} GPU{'s' * (len(gpus) > 1)} here: use "
            "CPUDevice(), or install 'jax[cuda13]' on a machine with a GPU"
        )
    return gpus[device.index]


def use_threads(threads: int) -> None:
    """Let operators have that many threads; JAX takes this at its first use, and stays with it."""
    before = os.environ.get("NPROC")
    os.environ["NPROC"] = str(threads)  # which XLA asks for the size of its pool
    try:
        jax.devices("cpu")
    finally:
        if before is None:
            del os.environ["NPROC"]
        else:
            os.environ["NPROC"] = before


def _gpus() -> list[Any]:
    try:
        return list(jax.devices("gpu"))
    except RuntimeError:  # no such platform
        return []
