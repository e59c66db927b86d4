"""A PyTorch module's tensors as views of flat buffers: its parameters, their gradients, its other state."""

from collections.abc import Iterator
from typing import Any, final

import numpy as np
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.executor import Allocate
from d5ray.networks.executors.slots import Slot

Named = dict[str, torch.Tensor]


def trained(module: nn.Module) -> Named:
    """The parameters that a module trains."""
    named: Named = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    if not named:
        raise ConfigurationError(
            "the model has no parameters to train: give it at least one layer with weights"
        )
    return named


def slots(named: Named) -> tuple[Slot, ...]:
    """The places of these tensors in their flat buffer, one after the other."""
    made: list[Slot] = []
    offset = 0
    for name, tensor in named.items():
        made.append(Slot(name, offset, tuple(tensor.shape)))
        offset += tensor.numel()
    return tuple(made)


def gathered(what: str, named: Named, like: torch.Tensor) -> torch.Tensor:
    """A flat copy (n,) of these tensors, which are of one type; where there are none, like another one."""
    _check_one_kind(what, named)
    if not named:
        return like.new_empty(0)
    return torch.cat([tensor.detach().reshape(-1) for tensor in named.values()])


def laid_together(what: str, named: Named, like: torch.Tensor) -> torch.Tensor:
    """A flat buffer (n,) with the values of these tensors, whose memory it becomes."""
    flat = gathered(what, named, like)
    for tensor, piece in zip(named.values(), pieces(flat, slots(named)), strict=True):
        tensor.data = piece
    return flat


def pieces(flat: torch.Tensor, places: tuple[Slot, ...]) -> Iterator[torch.Tensor]:
    """The views of a flat buffer (n,) that its slots describe."""
    for slot in places:
        yield flat[slot.offset : slot.offset + slot.size].view(slot.shape)


def over(memory: np.ndarray[Any, Any], count: int, kind: torch.dtype) -> torch.Tensor:
    """A tensor (count,) of this type over the memory of an array, whatever NumPy calls its elements."""
    expected = f"a writable, contiguous and aligned NumPy array of {count} elements of {kind.itemsize} bytes"
    if not isinstance(memory, np.ndarray):
        raise ConfigurationError(f"allocate gave a {type(memory).__name__}, but {kind} needs {expected}")
    fits = memory.shape == (count,) and memory.itemsize == kind.itemsize
    usable = memory.flags.c_contiguous and memory.flags.writeable and memory.ctypes.data % kind.itemsize == 0
    if not (fits and usable):
        raise ConfigurationError(
            f"allocate gave an array of shape {memory.shape} and type {memory.dtype} with strides "
            f"{memory.strides} at address {memory.ctypes.data:#x}, writable: {memory.flags.writeable}; "
            f"{kind} needs {expected}"
        )
    return torch.from_numpy(memory.view(np.uint8)).view(kind)


def numbers(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The values in host memory; those of bfloat16, which NumPy lacks, as the equal float32."""
    wide = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    return np.asarray(wide.cpu().numpy())


@final
class Buffers:
    """The memory of some parameters (n,), and that of their gradients.

    like: what the buffers are like where there are no parameters.
    """

    def __init__(self, named: Named, like: torch.Tensor) -> None:
        self._tensors = tuple(named.values())
        self.slots = slots(named)
        values = gathered("parameters", named, like)
        self._lay_into(values, torch.zeros_like(values))

    def use(self, allocate: Allocate) -> None:
        """Move into memory of the caller's, in host memory; values are kept. See `Executor.use_buffers`."""
        values, gradients = self.parameters.clone(), self.gradients.clone()  # the new memory may be the old
        kind = values.dtype
        name = str(kind).removeprefix("torch.")
        first, second = allocate(len(values), name), allocate(len(values), name)
        parameters, slopes = over(first, len(values), kind), over(second, len(values), kind)
        if np.may_share_memory(first, second):
            raise ConfigurationError(
                "allocate gave overlapping memory for parameters and gradients: it must give each its own"
            )
        self._lay_into(parameters.copy_(values), slopes.copy_(gradients))

    def _lay_into(self, parameters: torch.Tensor, gradients: torch.Tensor) -> None:
        """Make these flat buffers (n,) the memory of the tensors and of their gradients."""
        for tensor, value in zip(self._tensors, pieces(parameters, self.slots), strict=True):
            tensor.data = value
        for tensor, gradient in zip(self._tensors, pieces(gradients, self.slots), strict=True):
            tensor.grad = gradient
        self.parameters, self.gradients = parameters, gradients


@final
class State:
    """The state that a module changes without training it: its buffers.

    `floating` (m,) is the memory of its floating-point buffers; `counters` are the others as they are, each
    contiguous, so that it can be exchanged in place.
    """

    def __init__(self, module: nn.Module, like: torch.Tensor) -> None:
        self._named: Named = dict(module.named_buffers())
        floating = {name: b for name, b in self._named.items() if b.is_floating_point()}
        _check_none_is_complex(self._named)
        self.floating = laid_together("floating-point buffers", floating, like)
        self.counters = tuple(b for name, b in self._named.items() if name not in floating)
        for buffer in self.counters:
            buffer.data = buffer.contiguous()
        self._places = [(*_owner(module, name), buffer) for name, buffer in self._named.items()]

    def adopt(self) -> None:
        """Copy back what the module has put in a buffer's place: `self.mean = ...` makes another tensor."""
        for owner, key, buffer in self._places:
            found = getattr(owner, key)
            if found is not buffer:
                _check_alike(key, buffer, found)
                buffer.copy_(found.detach())
                setattr(owner, key, buffer)

    def named(self) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of every buffer under its name, in host memory."""
        self.adopt()
        return {name: numbers(buffer).copy() for name, buffer in self._named.items()}


def _owner(module: nn.Module, name: str) -> tuple[nn.Module, str]:
    """The part of a module that holds the buffer of this name, and the attribute."""
    path, _, key = name.rpartition(".")
    return module.get_submodule(path), key


def _check_none_is_complex(named: Named) -> None:
    for name, buffer in named.items():
        if buffer.is_complex():
            raise ConfigurationError(
                f"the model's buffer {name!r} is of type {buffer.dtype}, but agents exchange real numbers: "
                "register it as torch.view_as_real(...)"
            )


def _check_alike(key: str, buffer: torch.Tensor, found: object) -> None:
    """Raise if a module has put in a buffer's place what is not of its shape and type."""
    if not isinstance(found, torch.Tensor) or found.shape != buffer.shape or found.dtype != buffer.dtype:
        shown = f"{tuple(found.shape)}, {found.dtype}" if isinstance(found, torch.Tensor) else repr(found)
        raise ConfigurationError(
            f"the model has replaced its buffer {key!r} ({tuple(buffer.shape)}, {buffer.dtype}) by "
            f"({shown}): agents exchange a model's state, so let it keep one shape and type"
        )


def _check_one_kind(what: str, named: Named) -> None:
    """Raise if the tensors differ in type or device, since one flat buffer has one of each."""
    kinds = {tensor.dtype for tensor in named.values()}
    if len(kinds) > 1:
        raise ConfigurationError(
            f"the model's {what} are of several types ({', '.join(sorted(map(str, kinds)))}), but the "
            "flat buffer needs one: convert the model with .to(torch.float32)"
        )
    devices = {tensor.device for tensor in named.values()}
    if len(devices) > 1:
        raise ConfigurationError(
            f"the model's {what} are on several devices ({', '.join(sorted(map(str, devices)))}), but the "
            "flat buffer needs one: move the model with .to(device)"
        )
