"""Copies of a PyTorch model and its loss, whose functions and hooks use the copies as they used the models"""

import copy
import functools
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, final

import numpy as np
import torch
from torch import nn
from torch.jit import ScriptModule

from d5ray.errors import ConfigurationError, first_line
from d5ray.frameworks.torch.shared_memory import (
    check_copied,
    has_memory,
    put_views,
    storage_of,
    views_of_parameters,
)

CONTAINERS: Final = (list, tuple, set, dict)
GENERATORS: Final = (np.random.Generator, torch.Generator)
CHANGING: Final = (int, float, type(None), *CONTAINERS[2:], list, np.ndarray, torch.Tensor, *GENERATORS)
Hook = tuple[str, torch.Tensor, Callable[..., Any]]  # how it is registered, of which parameter


def copied(model: Any, loss: Any = None, *, kept: Iterable[torch.Tensor] = ()) -> tuple[Any, Any]:
    """A model and its loss for one agent: copies, of which parameters that both use stay one.

    A model that is no module, such as a class, is left as it is. Functions that they hold, such as hooks and
    lambdas, see the copies where they saw the models, and parameters keep their hooks. kept: tensors that the
    copy has in common with the model. Raises `ConfigurationError` for what cannot be copied.
    """
    given = model if isinstance(model, nn.Module) else None
    modules = [*modules_in([model]), *parts_of(loss)]
    check_copied(modules)
    memo: dict[int, Any] = {id(each): each for each in kept}
    try:
        own = _deepcopy(given, memo)
    except (RuntimeError, TypeError) as error:
        raise ConfigurationError(
            f"the model, a {type(model).__name__}, cannot be copied, and agents have models of their own "
            f"({type(error).__name__}: {first_line(error)}): give its class, or a function that makes it"
        ) from error
    try:
        criterion = _deepcopy(loss, memo)
    except (RuntimeError, TypeError):  # it has what only one may have, such as a file
        criterion = loss
    for part in (part for root in modules for part in root.modules()):
        if isinstance(part, ScriptModule) and id(part) in memo:
            _finish_script(part, memo)
    put_views(
        (memo[id(view)], memo[id(of)])
        for view, of in views_of_parameters(modules)
        if id(view) in memo and id(of) in memo
    )
    functions = _Functions(memo, [each for module in modules for each in module.parameters()])
    functions.replace()
    for how, tensor, hook in hooks_of(modules):
        if memo.get(id(tensor), tensor) is not tensor:
            getattr(memo[id(tensor)], how)(functions.of(hook))
    return (model if given is None else own), criterion


@torch.no_grad()
def _deepcopy(value: Any, memo: dict[int, Any]) -> Any:
    """A copy, whose tensors follow from no others: TorchScript copies its own by differentiable clones."""
    return copy.deepcopy(value, memo)


def _finish_script(module: nn.Module, memo: dict[int, Any]) -> None:
    """Let the parameters of a scripted module's copy require gradients as its own do, and be known."""
    for given, own in zip(module.parameters(), memo[id(module)].parameters(), strict=True):
        memo[id(given)] = own.requires_grad_(given.requires_grad)


def parts_of(loss: Any) -> list[nn.Module]:
    """The modules that a loss holds."""
    return [] if loss is None else modules_in(vars(loss).values())


def cells_of(value: Any) -> Iterator[types.CellType]:
    """The variables of the functions that a value leads to, which these may set anew."""
    ahead, seen = [value], set[int]()
    while ahead:
        if id(found := ahead.pop()) not in seen:
            seen.add(id(found))
            ahead += (held := _held(found))
            if isinstance(found, types.CellType) and held:  # not empty
                yield found


def modules_in(values: Iterable[Any]) -> list[nn.Module]:
    """The modules of PyTorch among some values."""
    return [each for each in values if isinstance(each, nn.Module)]


def hooks_of(modules: Iterable[nn.Module]) -> Iterator[Hook]:
    """The hooks of parameters, which PyTorch neither copies nor pickles."""
    for module in modules:
        for tensor in module.parameters():
            for how, kept in (
                ("register_hook", tensor._backward_hooks),
                ("register_post_accumulate_grad_hook", getattr(tensor, "_post_accumulate_grad_hooks", None)),
            ):
                for hook in (kept or {}).values():
                    yield how, tensor, hook


@final
class _Functions:
    """The functions of what has been copied, with the copies in place of what they hold.

    memo: of `copy.deepcopy`, which takes functions as they are: the copies by the numbers of what they are
    copies of. parameters: that were copied.
    """

    def __init__(self, memo: dict[int, Any], parameters: Iterable[torch.Tensor]) -> None:
        self._memo = memo
        self._parameters = {storage_of(each): each for each in parameters if has_memory(each)}
        self._made: dict[int, Any] = {}
        self._leads: dict[int, bool] = {}

    def replace(self) -> None:
        """Put them in the place of what copies hold as attributes, or in lists and dictionaries."""
        originals = self._memo.get(id(self._memo))
        for each in [each for each in self._memo.values() if each is not originals]:
            places: Any = each if isinstance(each, (dict, list)) else getattr(each, "__dict__", None)
            if isinstance(places, (dict, list)):
                for key, value in list(places.items() if isinstance(places, dict) else enumerate(places)):
                    if isinstance(value, (types.FunctionType, functools.partial)) and self._is_to_copy(value):
                        places[key] = self.of(value)

    def of(self, value: Any) -> Any:
        """The copy of a value that a function holds, or the value where nothing of it was copied."""
        if id(value) in self._memo:
            return self._memo[id(value)]
        if not self._is_to_copy(value):
            return value
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.CellType):
            return self._cell(value)
        if isinstance(value, types.MethodType):
            return types.MethodType(self.of(value.__func__), self.of(value.__self__))
        if isinstance(value, functools.partial):
            named = {name: self.of(each) for name, each in value.keywords.items()}
            return functools.partial(self.of(value.func), *map(self.of, value.args), **named)
        if isinstance(value, dict):
            return {key: self.of(each) for key, each in value.items()}
        if isinstance(value, torch.Tensor):
            own = self._memo[id(self._parameters[storage_of(value)])].detach()
            return own.as_strided(value.shape, value.stride(), value.storage_offset())
        return type(value)(map(self.of, value))

    def _function(self, found: types.FunctionType) -> Any:
        if id(found) not in self._made:
            made = types.FunctionType(
                found.__code__,
                found.__globals__,
                found.__name__,
                self.of(found.__defaults__),
                tuple(map(self.of, found.__closure__ or ())),
            )
            self._made[id(found)] = functools.update_wrapper(made, found, updated=("__dict__",))
            made.__dict__.pop("__wrapped__", None)
            made.__dict__.update({name: self.of(each) for name, each in found.__dict__.items()})
            made.__kwdefaults__ = self.of(found.__kwdefaults__)
        return self._made[id(found)]

    def _cell(self, found: types.CellType) -> types.CellType:
        if id(found) not in self._made:
            self._made[id(found)] = types.CellType()  # before what it holds, which may be the function
            own = self.of(found.cell_contents)
            if own is found.cell_contents and isinstance(own, CHANGING):
                with suppress(RuntimeError, TypeError):  # of what there can be only one
                    own = copy.deepcopy(own, self._memo)
            self._made[id(found)].cell_contents = own
        return self._made[id(found)]  # type: ignore[no-any-return]

    def _is_to_copy(self, value: Any) -> bool:
        """True if a value leads to something that was copied, or to what its own calls may change."""
        if id(value) in self._memo:
            return True
        if isinstance(value, types.CellType) and any(isinstance(each, CHANGING) for each in _held(value)):
            return True
        if isinstance(value, torch.Tensor):
            of = self._parameters.get(storage_of(value)) if has_memory(value) else None
            return of is not None and self._memo.get(id(of), of) is not of
        if id(value) not in self._leads:
            self._leads[id(value)] = False  # as long as it is looked at
            self._leads[id(value)] = any(map(self._is_to_copy, _held(value)))
        return self._leads[id(value)]


def _held(value: Any) -> Iterable[Any]:
    """What a function, a container or an object of the user's holds."""
    if isinstance(value, types.FunctionType):
        more = value.__defaults__ or (), value.__kwdefaults__ or {}, value.__dict__
        return *(value.__closure__ or ()), *more
    if isinstance(value, types.CellType):
        try:
            return (value.cell_contents,)
        except ValueError:  # empty
            return ()
    if isinstance(value, types.MethodType):
        return value.__self__, value.__func__
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, CONTAINERS) else ()
