"""The buffers of a PyTorch module, which forward passes change"""

from typing import final

import torch
from torch import nn

from d5ray.errors import ConfigurationError

Named = dict[str, torch.Tensor]


@final
class ModuleBuffers:
    """A module's buffers: `floating` point ones by name, and the others, each contiguous.

    So those can be exchanged in place, as `counters`.
    """

    def __init__(self, module: nn.Module) -> None:
        self.named: Named = dict(module.named_buffers())
        _check_none_is_complex(self.named)
        self.floating = {name: b for name, b in self.named.items() if b.is_floating_point()}
        self.counters = {name: b for name, b in self.named.items() if name not in self.floating}
        for buffer in self.counters.values():
            buffer.data = buffer.contiguous()
        self._places = [(*_owner(module, name), buffer) for name, buffer in self.named.items()]

    def adopt(self) -> None:
        """Copy back what the module has put in a buffer's place: `self.mean = ...` makes another tensor."""
        for owner, key, buffer in self._places:
            found = getattr(owner, key)
            if found is not buffer:
                _check_alike(key, buffer, found)
                buffer.copy_(found.detach())
                setattr(owner, key, buffer)


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
