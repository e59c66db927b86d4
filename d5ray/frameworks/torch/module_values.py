"""Values beside the tensors of a PyTorch module that training changes: attributes, generators, extra state"""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final, final

import torch
from torch import nn
from torch.jit import ScriptModule

from d5ray.frameworks.torch.copying import cells_of, parts_of
from d5ray.frameworks.torch.shared_memory import has_memory, storage_of
from d5ray.networks.executors.model_values import FIXED, PLAIN, ModelValues, Place, put_attribute
from d5ray.operators.loss import Loss

OF_INPUTS: Final = (torch.dtype, torch.device)  # which a pass finds again
OF_PYTORCH: Final = frozenset(vars(nn.Module())) - {"training"}
OF_LOSS: Final = OF_PYTORCH - {"_buffers"}


@final
class ModuleValues(ModelValues):
    """Attributes and extra state of a module's parts, variables of their closures, what is frozen; so of its
    loss and the loss's parts, whose buffers are among them."""

    def __init__(self, module: nn.Module, loss: Loss | None, trained: Mapping[str, torch.Tensor]) -> None:
        self._module, self._loss, self._trained = module, loss, trained
        self.note_first()
        self._first_frozen = self._frozen()
        self._first_parts = [_FirstPart(path, part) for path, part in self._parts_once()]

    def places(self) -> Iterator[Place]:
        yield "d5ray/frozen", self._frozen(), self._freeze
        for path, part in self._parts_once():
            yield from _of_part(path, part)
        yield from self._of_loss()

    def suspects(self) -> Iterator[Place]:
        if not all(first.has_its_children() for first in self._first_parts):
            yield from self.places()
            return
        if (frozen := self._frozen()) != self._first_frozen:
            yield "d5ray/frozen", frozen, self._freeze
        for first in self._first_parts:
            if not first.is_as_at_first():
                yield from _of_part(first.path, first.part)
        yield from self._of_loss()

    def stand_ins(self) -> Callable[[Any], Any]:
        known = self._known = self._kept_elsewhere()
        laid = {storage_of(each) for each in known.values() if has_memory(each)}

        def stand_in(value: Any) -> Any:
            if id(value) in known or (has_memory(value) and storage_of(value) in laid):
                return id(value)
            if isinstance(value, torch.Generator):
                value = value.get_state()
            if not isinstance(value, torch.Tensor):
                return None
            own = value.detach().cpu().resolve_conj().contiguous().reshape(-1)
            return str(value.dtype), tuple(value.shape), own.view(torch.uint8).numpy().tobytes()

        return stand_in

    def copy(self, value: Any) -> Any:
        try:
            return copy.deepcopy(value, dict(self._known))
        except (RuntimeError, TypeError):  # of what there can be only one
            return value

    def put_new(self, name: str, value: Any) -> None:
        path, _, key = name.rpartition(".")
        if not path.startswith("d5ray/"):
            vars(self._module.get_submodule(path))[key] = value

    def _kept_elsewhere(self) -> dict[int, Any]:
        """Modules, and the tensors that the executor has, by their numbers."""
        found = [each for _, part in self._parts() for each in (part, *part.parameters(recurse=False))]
        return {id(each): each for each in (*found, *self._module.buffers())}

    def _frozen(self) -> list[str]:
        return [name for name, tensor in self._trained.items() if not tensor.requires_grad]

    def _of_loss(self) -> Iterator[Place]:
        if self._loss is not None:
            yield from _attributes("d5ray/loss", vars(self._loss), ())

    def _parts_once(self) -> Iterator[tuple[str, nn.Module]]:
        """The parts, each by its first name."""
        seen: set[int] = set()
        for path, part in self._parts():
            if id(part) not in seen:
                seen.add(id(part))
                yield path, part

    def _parts(self) -> Iterator[tuple[str, nn.Module]]:
        yield from self._module.named_modules(remove_duplicate=False)
        for at, root in enumerate(parts_of(self._loss)):
            for path, part in root.named_modules(remove_duplicate=False):
                yield f"d5ray/loss{at}{'.' if path else ''}{path}", part

    def _freeze(self, names: Collection[str]) -> None:
        for name, tensor in self._trained.items():
            tensor.requires_grad_(name not in names)


@final
class _FirstPart:
    """A part of a module as it was when the model was made, compared with itself in a microsecond."""

    def __init__(self, path: str, part: nn.Module) -> None:
        self.path, self.part, self._values = path, part, vars(part)
        self._children, self._size = list(part._modules.items()), len(self._values)
        own = {key: self._values[key] for key in self._values.keys() - _others(path)}
        self._keys, self._first = tuple(own), tuple(own.values())
        looks = _has_extra_state(part) or isinstance(part, ScriptModule)
        self._is_plain = not looks and all(map(_is_plain, own.values()))

    def has_its_children(self) -> bool:
        """Whether it has the same parts of its own as at first."""
        return list(self.part._modules.items()) == self._children

    def is_as_at_first(self) -> bool:
        """Whether all attributes are those of the beginning; False where only a closer look can tell."""
        try:
            return (
                self._is_plain
                and len(self._values) == self._size
                and tuple(map(self._values.__getitem__, self._keys)) == self._first
            )
        except KeyError:
            return False


def _is_plain(value: Any) -> bool:
    """Whether a value is another one wherever it has changed: no variable of its own, set or not yet, may."""
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    has_variables = getattr(value, "__closure__", None) or any(True for _ in cells_of(value))
    return isinstance(value, (*PLAIN, *FIXED, *OF_INPUTS)) and not has_variables


def _others(path: str) -> frozenset[str]:
    """The attributes that PyTorch or the executor keeps."""
    return OF_LOSS if path.startswith("d5ray/") else OF_PYTORCH


def _scripted(part: Any) -> set[str]:
    """The attributes that TorchScript keeps, of which tensors may be parameters or buffers too."""
    kept = part._concrete_type.get_attributes().keys() - OF_PYTORCH
    return set(kept.difference(part._parameters.keys(), part._buffers.keys()))


def _has_extra_state(part: nn.Module) -> bool:
    return type(part).get_extra_state is not nn.Module.get_extra_state


def _of_part(path: str, part: nn.Module) -> Iterator[Place]:
    if isinstance(part, ScriptModule):
        for key in _scripted(part):
            yield f"{path}.{key}" if path else key, getattr(part, key), partial(setattr, part, key)
        return
    yield from _attributes(path, vars(part), _others(path))
    if _has_extra_state(part):
        yield f"{path}._extra_state", part.get_extra_state(), part.set_extra_state


def _attributes(path: str, values: dict[str, Any], others: Collection[str]) -> Iterator[Place]:
    for key, value in list(values.items()):
        name = f"{path}.{key}" if path else key
        if key not in others and not isinstance(value, OF_INPUTS):
            yield name, value, partial(put_attribute, values, key)
        for at, cell in enumerate(cells_of(value)):
            yield f"{name}.{at}", cell.cell_contents, partial(setattr, cell, "cell_contents")
