"""The buffers of a PyTorch module, which forward passes change"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from d5ray.errors import ConfigurationError

Named = dict[str, torch.Tensor]


@final
class ModuleBuffers:
    """A module's buffers: `floating` point ones by name, of one type, and the others, each contiguous.

    So those can be exchanged in place, as `counters`; of complex numbers as pairs of real ones. kind: the
    type of `floating` ones where there are some of it.
    """

    def __init__(self, module: nn.Module, kind: torch.dtype) -> None:
        self.named: Named = dict(module.named_buffers())
        for name, tensor in (*module.named_parameters(), *self.named.items()):
            if tensor.is_floating_point() and tensor.element_size() == 1:
                raise ConfigurationError(
                    f"the model's {name!r} is of {tensor.dtype}, which agents neither exchange nor keep: "
                    "register its bytes, as .view(torch.uint8) gives them, and view those in forward"
                )
        kinds = {b.dtype for b in self.named.values() if b.is_floating_point()}
        chosen = kind if kind in kinds else next(iter(sorted(kinds, key=str)), kind)
        self.floating = {name: b for name, b in self.named.items() if b.dtype == chosen}
        self.counters: Named = {}
        for name, buffer in self.named.items():
            if name not in self.floating:
                buffer.data = buffer.detach().contiguous().resolve_conj().resolve_neg()
                self.counters[name] = torch.view_as_real(buffer) if buffer.is_complex() else buffer
        parts = dict(module.named_modules())
        self._places = [
            (parts[name.rpartition(".")[0]], name.rpartition(".")[2], self.named[name]) for name in self.named
        ]
        # What normalizations gather in training, they read in evaluations alone.
        names = {id(buffer): name for name, buffer in self.named.items()}
        self._gathered = [
            (part, frozenset(names[id(b)] for b in part.buffers()))
            for part in parts.values()
            if isinstance(part, _NormBase)
        ]
        gathered = frozenset[str]().union(*(own for _, own in self._gathered))
        self._read = {name: b for name, b in self.named.items() if name not in gathered}
        self._moving: set[str] = set()
        self._module = module
        self._registers = [each._buffers for each in parts.values()]
        self._counts = [*map(len, self._registers)]
        self._late: dict[str, tuple[torch.Tensor, int]] = {}  # registered in training, with their versions

    def note_versions(self) -> None:
        """Take notice of the buffers as they are now, before training."""
        self._versions = {name: buffer._version for name, buffer in self.named.items()}
        for part, names in self._gathered:
            if part.training:  # whose passes change them without another version
                self._versions |= dict.fromkeys(names, -1)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """An evaluation, whose changes are none of a training pass."""
        self._note_moving()
        yield
        self._versions |= {name: buffer._version for name, buffer in self._read.items()}

    @property
    def moving(self) -> frozenset[str]:
        """The buffers that passes have changed and may read in training."""
        self._note_moving()
        return frozenset(self._moving) | self.frozen_statistics | self._late_moving()

    def _late_moving(self) -> set[str]:
        """The buffers that were registered after agents began, and that passes have changed since."""
        if [*map(len, self._registers)] == self._counts and not self._late:
            return set()
        found = {
            f"{path}.{key}".removeprefix("."): buffer
            for path, part in self._module.named_modules()
            for key, buffer in part._buffers.items()
            if not isinstance(part, _NormBase) and buffer is not None
        }
        new = {name: (each, each._version) for name, each in found.items() if name not in self.named}
        before, self._late = self._late, new | {name: self._late[name] for name in new if name in self._late}
        return {
            name
            for name, (buffer, version) in before.items()
            if name in found and (found[name] is not buffer or found[name]._version != version)
        }

    @property
    def frozen_statistics(self) -> frozenset[str]:
        """The statistics that passes have gathered and read now, in normalizations in evaluation mode."""
        own = (name for part, names in self._gathered if not part.training for name in names)
        return frozenset(filter(self._has_changed, own))

    def _note_moving(self) -> None:
        self._moving.update(filter(self._has_changed, self._read))

    def _has_changed(self, name: str) -> bool:
        return self.named[name]._version != self._versions[name]

    def adopt(self) -> None:
        """Copy back what the module has put in a buffer's place: `self.mean = ...` makes another tensor."""
        for owner, key, buffer in self._places:
            found: Any = getattr(owner, key, None)
            if found is not buffer:
                _check_alike(key, buffer, found)
                with torch.no_grad():
                    buffer.copy_(found)
                if isinstance(owner._buffers, dict):  # whatever the module's own __setattr__ does
                    owner._buffers[key] = buffer
                else:
                    setattr(owner, key, buffer)


def _check_alike(key: str, buffer: torch.Tensor, found: object) -> None:
    """Raise if a module has put in a buffer's place what is not of its shape and type."""
    if not isinstance(found, torch.Tensor) or found.shape != buffer.shape or found.dtype != buffer.dtype:
        shown = f"{tuple(found.shape)}, {found.dtype}" if isinstance(found, torch.Tensor) else repr(found)
        raise ConfigurationError(
            f"the model has replaced its buffer {key!r} ({tuple(buffer.shape)}, {buffer.dtype}) by "
            f"({shown}): agents exchange a model's state, so let it keep one shape and type"
        )
