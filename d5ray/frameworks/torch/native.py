"""Engine that moves views of a flat buffer by an optimizer of PyTorch, and makes plain data of its state"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import numpy as np
import torch

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.model_values import PLAIN
from d5ray.training.optimizers.native import Engine, NativeOptimizer, Settings, classes_in, is_number, named
from d5ray.training.optimizers.optimizer import Slots

# Of torch.optim: they treat every element by itself, so that the flat buffer can be one tensor.
ELEMENTWISE: Final = frozenset(
    ("ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
)
Made = torch.optim.Optimizer
PARAMETERS = "params"  # of a group; all else in it are settings


@final
class TorchEngine(Engine):
    """The optimizer, and tensors that are views of x (n,); their `grad` are views of the gradient (n,)."""

    def __init__(
        self, rule: NativeOptimizer, x: Any, slots: Slots, remembered: Mapping[str, Any] | None
    ) -> None:
        flat = as_tensor(x)
        self.rule, self._slots = rule, slots
        self._tensors = [view.detach() for view in _views(flat, slots)]
        names = [slot.name for slot in slots] or ["parameters"]
        try:
            self._optimizer = made(rule, list(zip(names, self._tensors, strict=True)))
        except (ValueError, TypeError, RuntimeError) as error:
            raise ConfigurationError(
                f"{rule!r} does not take the model's tensors: {error}; give a function of [(name, tensor), "
                "…] that makes an optimizer of them"
            ) from error
        self._settings, self._first = rule.made_with, rule.first
        self._groups = [dict(group) for group in self._optimizer.param_groups]
        self._at: tuple[int, int] = (flat.data_ptr(), 0)  # where x and the gradient lie
        self._closure = _closure_of(self._optimizer, repr(rule))
        if remembered is not None:
            self._go_on_with(remembered)

    def step(self, x: Any, gradient: Any, settings: Settings) -> None:
        self._point(as_tensor(x), as_tensor(gradient))
        if settings != self._settings:
            self._change(settings)
        with torch.no_grad():
            if self._closure is None:
                self._optimizer.step()
            else:
                self._optimizer.step(self._closure())

    def step_without(self, x: Any, gradient: Any, settings: Settings, unused: Slots) -> bool:
        self._point(as_tensor(x), as_tensor(gradient))
        names = {slot.name for slot in unused}
        without = [t for t, slot in zip(self._tensors, self._slots, strict=True) if slot.name in names]
        kept = [tensor.grad for tensor in without]
        for tensor in without:
            tensor.grad = None
        self.step(x, gradient, settings)
        for tensor, own in zip(without, kept, strict=True):
            tensor.grad = own
        return True

    def remembered(self) -> dict[str, Any]:
        return {
            "tensors": [self._optimizer.state[tensor] for tensor in self._tensors],
            "groups": [
                {name: value for name, value in group.items() if name != PARAMETERS}
                for group in self._optimizer.param_groups
            ],
            "own": self._own_numbers(),
        }

    def _own_numbers(self) -> dict[str, Any]:
        """What an optimizer of the user's keeps beside its groups and states, such as a counter of steps."""
        rule = self._optimizer
        known = type(rule).__module__.startswith("torch.")
        return {} if known else {n: v for n, v in vars(rule).items() if isinstance(v, PLAIN)}

    def _point(self, x: torch.Tensor, gradient: torch.Tensor) -> None:
        """Let the tensors be views of these, if they lie elsewhere than the last ones."""
        at = x.data_ptr(), gradient.data_ptr()
        if at[0] != self._at[0]:
            for tensor, view in zip(self._tensors, _views(x, self._slots), strict=True):
                tensor.data = view
        if at[1] != self._at[1]:
            for tensor, view in zip(self._tensors, _views(gradient, self._slots), strict=True):
                tensor.grad = view
        self._at = at

    def _change(self, settings: Settings) -> None:
        """Other settings from now on; a group whose own value was another one keeps the ratio."""
        for name, value in settings.items():
            first = self._first.get(name)
            for group, begun in zip(self._optimizer.param_groups, self._groups, strict=True):
                if name in group:
                    same = begun[name] == first or not is_number(first) or not first
                    group[name] = value if same else value * begun[name] / first
        self._settings = settings

    def _go_on_with(self, remembered: Mapping[str, Any]) -> None:
        found = len(remembered["tensors"])
        if found != len(self._tensors):
            raise ConfigurationError(
                f"the optimizer's state is of {found} tensors, here are {len(self._tensors)}: it is of "
                "another model"
            )
        vars(self._optimizer).update(remembered.get("own", {}))
        for tensor, own in zip(self._tensors, remembered["tensors"], strict=True):
            self._optimizer.state[tensor] = _own(own)
        for group, begun in zip(self._optimizer.param_groups, remembered["groups"], strict=True):
            group.update({name: _own(value) for name, value in begun.items() if name not in self._settings})


ENGINE: Final = TorchEngine


def as_tensor(array: Any) -> torch.Tensor:
    """A tensor over the memory of an array of PyTorch, NumPy or CuPy; a copy where it must not be written."""
    if isinstance(array, torch.Tensor):
        return array.detach()
    if isinstance(array, np.ndarray):
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    shared: torch.Tensor = torch.utils.dlpack.from_dlpack(array)
    return shared


def is_elementwise(rule: NativeOptimizer) -> bool:
    """True if the rule is one of `torch.optim` that treats every element by itself."""
    return _maker(rule) in {getattr(torch.optim, name) for name in ELEMENTWISE}


def tried(rule: NativeOptimizer) -> dict[str, Any]:
    """The numbers of an optimizer's first group, after two steps on a small matrix; raises what is wrong."""
    x = torch.ones(4)
    own_groups = not isinstance(rule.rule, (str, type))  # by the model's names
    try:
        optimizer = made(rule, [("matrix", x.view(2, 2))], some=own_groups)
    except ConfigurationError:
        raise
    except Exception as error:
        if own_groups:  # it may look for names of the model's, for which it is made again
            given = {name: each.default for name, each in inspect.signature(rule.rule).parameters.items()}
            given |= dict(rule.made_with)
            return {name: value for name, value in given.items() if is_number(value)}
        raise ConfigurationError(f"{rule!r} cannot be made: {error}") from error
    tensors = [each for group in optimizer.param_groups for each in group[PARAMETERS]]
    closure = _closure_of(optimizer, repr(rule))
    for _ in range(2):
        for tensor in tensors:
            tensor.grad = torch.tensor([[0.5, -1.0], [2.0, 0.25]])
        try:
            with torch.no_grad():
                if closure is None:
                    optimizer.step()
                else:
                    optimizer.step(closure())
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(f"{rule!r} cannot do a step: {error}") from error
    numbers = optimizer.param_groups[0].items()
    return {name: value for name, value in numbers if name != PARAMETERS and is_number(value)}


def made(rule: NativeOptimizer, tensors: list[tuple[str, torch.Tensor]], *, some: bool = False) -> Made:
    """The optimizer of these tensors, or of some of them."""
    make = _maker(rule)
    if inspect.isclass(make) and issubclass(make, Made):
        optimizer = make([tensor for _, tensor in tensors], **rule.made_with)
    elif callable(make) and not inspect.isclass(make):
        optimizer = make(tensors, **rule.made_with)
    else:
        optimizer = None
    if not isinstance(optimizer, Made):
        raise ConfigurationError(
            f"{rule.rule!r} is no optimizer: give the name of a class of torch.optim, a class derived from "
            "torch.optim.Optimizer, or a function of [(name, tensor), ...] that gives an optimizer of them"
        )
    given = {id(tensor): name for name, tensor in tensors}
    taken = [id(tensor) for group in optimizer.param_groups for tensor in group[PARAMETERS]]
    left_out = [] if some else [name for place, name in given.items() if place not in taken]
    if left_out or not set(taken) <= given.keys():
        also = f", also {left_out[0]!r} if it requires gradients" if left_out else ""
        raise ConfigurationError(
            f"{rule!r} takes {len(taken)} tensors, and was given {len(tensors)}: it must move exactly "
            f"those{also}"
        )
    return optimizer


def _maker(rule: NativeOptimizer) -> Any:
    """The class or function of a rule, which may be given by name."""
    own = rule.rule
    return named("torch.optim", classes_in(torch.optim, Made), own) if isinstance(own, str) else own


def _closure_of(optimizer: Made, text: str) -> Callable[[], Callable[[], float]] | None:
    """None, or for a rule that wants a closure what gives one for each step: there is one gradient a step."""
    parameters = list(inspect.signature(optimizer.step).parameters.values())
    if not parameters or parameters[0].default is not inspect.Parameter.empty:
        return None

    def closure() -> Callable[[], float]:
        calls = 0

        def loss() -> float:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise ConfigurationError(
                    f"{text} wants a second gradient within a step, and a step has one: for LBFGS give "
                    "max_iter=1 and no line search"
                )
            return 0.0

        return loss

    return closure


def _views(flat: torch.Tensor, slots: Slots) -> list[torch.Tensor]:
    return [flat[slot.offset : slot.offset + slot.size].view(slot.shape) for slot in slots] or [flat]


def _own(value: Any) -> Any:
    """A copy of what was remembered, with PyTorch's tensors for arrays."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, (np.ndarray, np.generic)):
        return torch.tensor(value)
    if isinstance(value, Mapping):
        return {name: _own(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_own(item) for item in value]
    return value
