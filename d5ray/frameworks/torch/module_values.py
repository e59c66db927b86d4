"""Values beside the tensors of a PyTorch module that training changes: attributes, generators, extra state"""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final, final

import torch
from torch import nn

from d5ray.frameworks.torch.copying import cells_of, parts_of
from d5ray.frameworks.torch.shared_memory import has_memory, storage_of
from d5ray.networks.executors.model_values import ModelValues, Place, put_attribute
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

    def places(self) -> Iterator[Place]:
        yield "d5ray/frozen", [n for n, each in self._trained.items() if not each.requires_grad], self._freeze
        seen: set[int] = set()
        for path, part in self._parts():
            if id(part) not in seen:
                seen.add(id(part))
                yield from _attributes(path, vars(part), OF_LOSS if path.startswith("d5ray/") else OF_PYTORCH)
                if type(part).get_extra_state is not nn.Module.get_extra_state:
                    yield f"{path}._extra_state", part.get_extra_state(), part.set_extra_state
        if self._loss is not None:
            yield from _attributes("d5ray/loss", vars(self._loss), ())

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

    def _parts(self) -> Iterator[tuple[str, nn.Module]]:
        yield from self._module.named_modules(remove_duplicate=False)
        for at, root in enumerate(parts_of(self._loss)):
            for path, part in root.named_modules(remove_duplicate=False):
                yield f"d5ray/loss{at}{'.' if path else ''}{path}", part

    def _freeze(self, names: Collection[str]) -> None:
        for name, tensor in self._trained.items():
            tensor.requires_grad_(name not in names)


def _attributes(path: str, values: dict[str, Any], others: Collection[str]) -> Iterator[Place]:
    for key, value in list(values.items()):
        name = f"{path}.{key}" if path else key
        if key not in others and not isinstance(value, OF_INPUTS):
            yield name, value, partial(put_attribute, values, key)
        for at, cell in enumerate(cells_of(value)):
            yield f"{name}.{at}", cell.cell_contents, partial(setattr, cell, "cell_contents")
