"""A pair of functions, `init` and `apply`, as a function of tensors; so is a module of Flax Linen"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

import jax
import jax.numpy as jnp

from d5ray.errors import ConfigurationError
from d5ray.frameworks.jax.model import JaxModel, OpenedModel, Tensors, mode_of, parameters_of
from d5ray.frameworks.jax.tree_layout import TreeLayout, is_trained
from d5ray.networks.executors.model_calls import called

STATE = "state"


@final
@dataclass(frozen=True)
class FunctionModel(JaxModel):
    """apply(parameters, inputs) gives the output; one that takes `state`, the output and the next state.

    It is told the mode and a key where it has a parameter for it: train, deterministic, key, …
    """

    apply: "SameCode"
    layout: TreeLayout
    kept: tuple[str, ...]  # of the parameters' arrays those that are no floating-point numbers
    state: TreeLayout | None

    def call(
        self, tensors: Tensors, inputs: Any, key: jax.Array, *, training: bool, **more: Any
    ) -> tuple[Any, dict[str, Any]]:
        kept = {name: tensors[name] for name in self.kept}
        parameters = self.layout.tree(tensors)
        mode = mode_of(self.apply.function, key, training=training) | more
        if self.state is None:
            return self.apply.function(parameters, inputs, **mode), kept
        found = self.apply.function(parameters, inputs, state=self.state.tree(tensors), **mode)
        if not isinstance(found, tuple) or len(found) != 2:
            raise ConfigurationError(
                f"the model's apply takes state, and returned a {type(found).__name__}: let it return "
                "(output, state)"
            )
        output, after = found
        return output, kept | self.state.arrays(after)

    def filled(self, tensors: Tensors) -> "TrainedFunction":
        state = None if self.state is None else self.state.tree(tensors)
        return TrainedFunction(self.apply.function, self.layout.tree(tensors), state)


@final
class SameCode:
    """A function that equals others of the same code, over the same things outside it.

    Each call of a function that makes `apply` within it gives another object, and what is compiled is shared
    by equal models.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        code = getattr(function, "__code__", None)
        self._key: tuple[Any, ...] = (function,) if code is None else (code, *_outside(function))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameCode) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@final
@dataclass(frozen=True)
class TrainedFunction:
    """A trained pair of functions: `parameters`, and `state` where it has one; called, it evaluates."""

    apply: Callable[..., Any]
    parameters: Any
    state: Any = None

    def __call__(self, inputs: Any) -> Any:
        mode = mode_of(self.apply, jax.random.key(0), training=False)
        if self.state is None:
            return self.apply(self.parameters, inputs, **mode)
        return self.apply(self.parameters, inputs, state=self.state, **mode)[0]


def opened(init: Callable[..., Any], apply: Callable[..., Any], key: jax.Array, probe: Any) -> OpenedModel:
    """The functions apart from the values that init(key), or init(key, inputs), makes.

    Where apply takes `state`, init gives (parameters, state). probe: two samples.
    """
    made = init(key, probe) if len(parameters_of(init)) > 1 else init(key)
    state = None
    if STATE in parameters_of(apply):
        if not isinstance(made, tuple) or len(made) != 2:
            raise ConfigurationError(
                f"the model's apply takes state, and its init gave a {type(made).__name__}: let it give "
                "(parameters, state)"
            )
        made, state = made
    layout, arrays = TreeLayout.of(jax.tree.map(_as_array, made))
    trained = {name: value for name, value in arrays.items() if is_trained(value)}
    kept = {name: value for name, value in arrays.items() if name not in trained}
    stated, values = (None, {}) if state is None else TreeLayout.of(jax.tree.map(_as_array, state))
    if both := arrays.keys() & values.keys():
        raise ConfigurationError(
            f"the model's parameters and its state both have {sorted(both)[0]!r}: name them apart"
        )
    return OpenedModel(
        FunctionModel(SameCode(apply), layout, tuple(kept), stated), trained, kept | dict(values)
    )


def _outside(function: Any) -> tuple[Any, ...]:
    """What a function takes from outside: plain values themselves, and of all else which object it is."""
    cells = inspect.getclosurevars(function).nonlocals.values()
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    told = [*cells, *defaults, function.__globals__]
    return tuple(
        (type(each), each) if isinstance(each, (bool, int, float, str, type(None))) else id(each)
        for each in told
    )


def _as_array(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, float) else leaf


PARAMETERS: Final = "params"
DRAWING: Final = ("dropout", "default")


def first_variables(module: Any, key: jax.Array, inputs: Any) -> tuple[Any, Any]:
    """The variables that are trained, and the others, by the names that Linen gives them."""
    keys = {PARAMETERS: key} | {name: jax.random.fold_in(key, 1) for name in DRAWING}
    mode = mode_of(type(module).__call__, key, training=False)
    made = dict(called(functools.partial(module.init, keys), inputs, **mode))
    return {PARAMETERS: made.pop(PARAMETERS, {})}, made


@final
@dataclass(frozen=True)
class LinenApply:
    """The module's `apply`; in training it draws with one key, and changes what is not trained."""

    module: Any

    def __call__(self, parameters: Any, inputs: Any, *, state: Any, key: jax.Array, train: bool) -> Any:
        mode = mode_of(type(self.module).__call__, key, training=train)
        apply = functools.partial(self.module.apply, {**parameters, **state})
        if not train:
            return called(apply, inputs, **mode), state
        keys = dict.fromkeys(DRAWING, key)
        output, after = called(apply, inputs, **mode, rngs=keys, mutable=list(state))
        return output, {name: after.get(name, own) for name, own in state.items()}
