"""CuPy as an array library: one GPU"""

from contextlib import AbstractContextManager
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError, first_line
from d5ray.frameworks.arrays.library import ArrayModule
from d5ray.networks.device import BestDevice, Device, GPUDevice

Array = Any  # of CuPy


@final
class CuPy(ArrayModule):
    """Arrays on a GPU. Raises `ConfigurationError` where CuPy, or the GPU, is not there."""

    name = "cupy"
    on_host = False

    def __init__(self, device: Device) -> None:
        self.xp = cupy = _imported()
        if not isinstance(device, (GPUDevice, BestDevice)):
            raise ConfigurationError(
                f"the device is {device}, and CuPy computes on a GPU: use GPUDevice(), or the framework numpy"
            )
        index = device.index if isinstance(device, GPUDevice) else 0
        try:
            found = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise ConfigurationError(
                f"CuPy finds no GPU here ({first_line(error)}): use the framework numpy, or a machine with "
                "an NVIDIA GPU and its driver"
            ) from error
        if index >= found:
            raise ConfigurationError(
                f"the device is {GPUDevice(index)}, and CuPy finds {found} here: choose an index below "
                f"{found}"
            )
        self._device = cupy.cuda.Device(index)

    def put(self, value: np.ndarray[Any, Any]) -> Array:
        with self._device:
            return self.xp.asarray(value)

    def get(self, value: Array) -> np.ndarray[Any, Any]:
        with self._device:
            return np.asarray(self.xp.asnumpy(value))

    def empty(self, shape: tuple[int, ...], kind: "np.dtype[Any]") -> Array:
        with self._device:
            return self.xp.empty(shape, kind)

    def computing(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._device
        return context

    def generator(self, seed: int) -> Any:
        return self.xp.random.default_rng(seed)

    def allocated(self) -> int | None:
        with self._device:
            return int(self.xp.get_default_memory_pool().used_bytes())

    def synchronize(self) -> None:
        with self._device:
            self.xp.cuda.get_current_stream().synchronize()


def _imported() -> Any:
    try:
        import cupy  # noqa: PLC0415 - takes a while, and is rarely there
    except ImportError as error:
        raise ConfigurationError(
            f"CuPy cannot be imported ({first_line(error)}): pip install 'd5ray[cuda]' on a machine with an "
            "NVIDIA GPU, or choose the framework numpy"
        ) from error
    return cupy
