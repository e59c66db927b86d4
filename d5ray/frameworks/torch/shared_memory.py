"""Tensors of PyTorch that lie in the memory of a module's parameters: views that follow, and what cannot"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from d5ray.errors import ConfigurationError

Pair = tuple[torch.Tensor, torch.Tensor]
HOLDERS: Final = getattr(torch._C, "_storage_Use_Count", None)  # of a storage
ALONE: Final = 2  # the tensor, and the object through which one asks


def views_of_parameters(modules: Iterable[nn.Module]) -> Iterator[Pair]:
    """Tensors that modules keep as attributes over the memory of a parameter, and the parameter.

    As `self.table = self.embedding.weight.detach()` makes them: under PyTorch they always show its values.
    """
    for module in modules:
        parameters: dict[int, list[torch.Tensor]] = {}
        for each in filter(has_memory, module.parameters()):
            parameters.setdefault(storage_of(each), []).append(each)
        own = {id(each) for each in (*module.parameters(), *module.buffers())}
        for _, tensor in _attributes(module):
            if has_memory(tensor) and id(tensor) not in own:
                for parameter in parameters.get(storage_of(tensor), ()):
                    if parameter.is_contiguous() and _lies_within(tensor, parameter):
                        yield tensor, parameter


def put_views(pairs: Iterable[Pair]) -> None:
    """Let views lie in the memory of copies of parameters where they lay in that of the parameters."""
    for view, of in pairs:
        view.data = of.detach().as_strided(view.shape, view.stride(), view.storage_offset())


def check_copied(modules: Iterable[nn.Module]) -> None:
    """Raise `ConfigurationError` where modules have tensors of which copies would not lie in one memory."""
    modules = list(modules)
    laid: dict[str, torch.Tensor] = {}
    for module in modules:
        laid |= {name: each for name, each in module.named_parameters() if each.requires_grad}
        laid |= {name: each for name, each in module.named_buffers() if each.is_floating_point()}
    _check_beside(modules, laid)


def check_memory(modules: Iterable[nn.Module], laid: Mapping[str, torch.Tensor]) -> None:
    """Raise `ConfigurationError` where something else lies in the memory of tensors that are moved elsewhere.

    laid: those tensors by name, the parameters that are trained and buffers. Views that modules keep as
    attributes follow; see `views_of_parameters`.
    """
    modules = list(modules)
    known = _check_beside(modules, laid)
    if HOLDERS is None:
        return
    views = (view for view, _ in views_of_parameters(modules))
    holders: dict[int, set[int]] = {}
    for each in (*(tensor for beside in known.values() for _, tensor in beside), *views):
        base = {id(each._base)} if each._is_view() else set()
        holders.setdefault(storage_of(each), set()).update({id(each)} | base)
    for name, tensor in laid.items():
        found = HOLDERS(tensor.untyped_storage()._cdata) if has_memory(tensor) else 0
        if found and found > ALONE - 1 + len(holders[storage_of(tensor)]):
            remedy = "keep a clone(), or the parameter itself"
            raise _shared(name, "something that is no attribute of its module", remedy)


def _check_beside(
    modules: list[nn.Module], laid: Mapping[str, torch.Tensor]
) -> dict[int, list[tuple[str, torch.Tensor]]]:
    """Raise for tensors and arrays in the memory of others; what modules have registered, by its memory."""
    for name, each in laid.items():
        if not (each.requires_grad and has_memory(each)):
            continue
        reached = 1 + sum((size - 1) * step for size, step in zip(each.shape, each.stride(), strict=True))
        if reached < each.numel():
            raise ConfigurationError(
                f"{name!r} of the model has {each.numel()} elements in the memory of {reached}, as expand() "
                "gives them, and no optimizer of PyTorch's changes such a tensor: keep the smaller one as "
                "the parameter, and expand it in forward"
            )
    named = {id(each): (name, each) for name, each in laid.items()}
    for module in modules:
        for name, each in (*module.named_parameters(), *module.named_buffers()):
            named.setdefault(id(each), (name, each))
    known: dict[int, list[tuple[str, torch.Tensor]]] = {}
    for name, each in named.values():
        if has_memory(each):
            known.setdefault(storage_of(each), []).append((name, each))
    arrays = [
        (name, each)
        for module in modules
        for name, each in _attributes(module)
        if isinstance(each, np.ndarray)
    ]
    for name, tensor in laid.items():
        if not has_memory(tensor):
            continue
        for other, found in known[storage_of(tensor)]:
            if found is not tensor and _overlap(tensor, found):
                remedy = f"use one tensor for both, as in self.{other} = self.{name}, or clone() one"
                raise _shared(name, f"{other!r}", remedy)
        for other, array in arrays:
            if _is_over(array, tensor):
                raise _shared(name, f"the array {other!r}", "keep a tensor, as weight.detach() gives it")
    return known


def _shared(name: str, with_what: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(
        f"{name!r} of the model lies in one memory with {with_what}, which would not show what training "
        f"makes of it, since agents move it into a buffer for their exchange: {remedy}"
    )


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The values that a module and its parts hold as attributes, also in lists and dictionaries."""
    for path, part in module.named_modules():
        for key, value in vars(part).items():
            if key in ("_parameters", "_buffers", "_modules"):
                continue
            name = f"{path}.{key}" if path else key
            if isinstance(value, (list, tuple)):
                yield from ((name, each) for each in value)
            elif isinstance(value, dict):
                yield from ((name, each) for each in value.values())
            else:
                yield name, value


def has_memory(tensor: Any) -> bool:
    """True for a tensor that lies in memory, of which other tensors may be views."""
    if not isinstance(tensor, torch.Tensor) or is_lazy(tensor):
        return False
    return tensor.layout == torch.strided and tensor.device.type != "meta" and tensor.numel() > 0


def storage_of(tensor: torch.Tensor) -> int:
    """The address of the memory of which a tensor is a part."""
    return tensor.untyped_storage().data_ptr()


def _is_over(array: "np.ndarray[Any, Any]", tensor: torch.Tensor) -> bool:
    """True if an array lies over the memory of a tensor."""
    if tensor.device.type != "cpu":
        return False
    low, high = np.lib.array_utils.byte_bounds(array)
    storage = tensor.untyped_storage()
    return low < storage.data_ptr() + storage.nbytes() and storage.data_ptr() < high


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of a tensor's memory within which it lies: from, to."""
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    begin = int(tensor.storage_offset())
    return begin * tensor.element_size(), (begin + int(last) + 1) * tensor.element_size()


def _lies_within(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    (begin, end), (first, last) = _extent(tensor), _extent(other)
    return tensor.dtype == other.dtype and first <= begin and end <= last


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if two tensors over one memory have a byte in common."""
    (begin, end), (first, last) = _extent(one), _extent(other)
    if end <= first or last <= begin:
        return False
    taken = [np.zeros(each.untyped_storage().nbytes(), np.bool_) for each in (one, other)]
    for mark, each in zip(taken, (one, other), strict=True):
        size = each.element_size()
        strides = [size * step for step in each.stride()]
        bytes_of = np.lib.stride_tricks.as_strided(
            mark[each.storage_offset() * size :], (*each.shape, size), (*strides, 1)
        )
        bytes_of[...] = True
    return bool((taken[0] & taken[1]).any())
