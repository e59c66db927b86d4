"""PyTorch as an array library, on one device; and tensors of arrays"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from d5ray.errors import ConfigurationError
from d5ray.networks.device import BestDevice, Device
from d5ray.networks.executors.array_library import ArrayLibrary, HostArray, Region, Tensors, allocated_bytes
from d5ray.ops.torch import types
from d5ray.ops.torch.types import array_of as array_of


@final
class Torch(ArrayLibrary):
    """Tensors in host memory or on a GPU, and the `generator` that PyTorch's own modules draw from there."""

    name = "torch"
    xp = torch

    def __init__(self, device: torch.device) -> None:
        self.device, self.on_host = device, device.type == "cpu"
        self.generator = torch.default_generator
        if device.type == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]  # which makes the generators
            index = torch.cuda.current_device() if device.index is None else device.index
            self.generator = torch.cuda.default_generators[index]

    def put(self, value: HostArray) -> torch.Tensor:
        return tensor_of(value).to(self.device)

    def empty(self, shape: tuple[int, ...], kind: "np.dtype[Any]") -> torch.Tensor:
        return torch.empty(shape, dtype=getattr(torch, kind.name), device=self.device)

    def get(self, value: torch.Tensor) -> HostArray:
        return np.array(numbers(value))

    def host(self, value: torch.Tensor) -> HostArray:
        return array_of(value.contiguous())

    def allocated(self) -> int | None:
        return allocated_bytes() if self.on_host else int(torch.cuda.memory_allocated(self.device))

    def synchronize(self) -> None:
        if not self.on_host:
            torch.cuda.synchronize(self.device)

    def type_of(self, array: Any) -> str:
        if not isinstance(array, torch.Tensor):
            raise TypeError(f"{type(array).__name__} is no tensor of PyTorch")
        return str(array.dtype).removeprefix("torch.")

    def region_of(self, array: torch.Tensor) -> Region:
        memory = array.untyped_storage()
        return Region(memory.data_ptr(), memory.nbytes(), array.data_ptr(), array.nbytes)

    def joined(self, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat([each.detach().reshape(-1) for each in arrays])

    def lay(self, tensors: Tensors, values: Tensors, gradients: Tensors) -> None:
        for name, tensor in tensors.items():
            tensor.data = values[name]
            if name in gradients:
                tensor.grad = gradients[name]


def numbers(tensor: torch.Tensor) -> HostArray:
    """The values in host memory; those of types that NumPy lacks, such as bfloat16, as the equal float32."""
    known = not tensor.is_floating_point() or tensor.dtype in (torch.float16, torch.float32, torch.float64)
    wide = tensor if known else tensor.float()
    return np.asarray(wide.cpu().numpy())


def chosen(device: Device) -> torch.device:
    """PyTorch's device. Raises `ConfigurationError` for a GPU where PyTorch finds none."""
    if isinstance(device, BestDevice):
        device = device.chosen(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    if str(device).startswith("cuda") and not torch.cuda.is_available():
        raise ConfigurationError(
            f"the device is {device}, but PyTorch finds no GPU here: use CPUDevice(), or install a CUDA "
            "build of torch on a machine with a GPU"
        )
    return torch.device(str(device))


def tensor_of(array: HostArray) -> torch.Tensor:
    """A tensor over the memory of an array, or over a copy of it where it must not be written."""
    return types.tensor_of(array if array.flags.writeable else array.copy())


def plain_tensor_of(array: HostArray) -> torch.Tensor:
    """A tensor over an array of a type that PyTorch shares with NumPy; asking for the type takes longer."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def save(tensors: Mapping[str, HostArray], path: PathLike[str]) -> None:
    """Write arrays as tensors by name, for `torch.load`."""
    try:
        with Path(path).open("wb") as file:
            torch.save({name: tensor_of(np.array(each)) for name, each in tensors.items()}, file)
    except RuntimeError as error:
        raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None
