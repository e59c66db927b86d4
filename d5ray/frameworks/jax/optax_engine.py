"""Engine that moves a flat buffer by an optimizer of Optax, and makes plain data of its state"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import jax
import numpy as np
import optax

from d5ray.errors import ConfigurationError, first_line
from d5ray.frameworks.host import Flat
from d5ray.frameworks.host_engine import RATE, HostEngine, check_state
from d5ray.training.optimizers.native import NativeOptimizer, Settings, is_number, named
from d5ray.training.optimizers.optimizer import Slots

# Of optax: they treat every element by itself, so that the flat buffer can be one array.
ELEMENTWISE: Final = frozenset(
    ("adabelief", "adadelta", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan", "amsgrad", "lion",
     "nadam", "nadamw", "optimistic_gradient_descent", "radam", "rmsprop", "rprop", "sgd", "sign_sgd",
     "yogi")
)  # fmt: skip
WHOLE: Final = "x"


@final
class OptaxEngine(HostEngine):
    """The optimizer at work on x (n,), as a compiled function of it, its gradient and the state before."""

    def __init__(
        self, rule: NativeOptimizer, x: Any, slots: Slots, remembered: Mapping[str, Any] | None
    ) -> None:
        super().__init__(rule, slots)
        flat = self._flat(x)
        self._double = flat.dtype == np.float64
        with self._computing():
            first = made(rule, rule.made_with).init(self._tree(flat))
            state, self._structure = jax.tree.flatten(first)
            self._state = [np.array(each) for each in state]
        self._step = self._compiled()
        if remembered is not None:
            self._go_on_with(remembered["state"])

    def step(self, x: Any, gradient: Any, settings: Settings) -> None:
        if _without_rate(settings) != _without_rate(self._settings):
            self._settings = settings
            self._step = self._compiled()
        flat = self._flat(x)
        own = self._tree(flat)
        rate = settings.get(RATE)
        with self._computing():
            moved, state = self._step(
                own,
                self._tree(self._flat(gradient)),
                self._state,
                None if rate is None else np.asarray(rate, flat.dtype),
            )
            for name, view in own.items():
                view[...] = moved[name]
            self._state = [np.array(each) for each in state]

    def remembered(self) -> dict[str, Any]:
        return {"state": self._state}

    def _computing(self) -> Any:
        return jax.enable_x64(self._double)

    def _tree(self, flat: Flat) -> dict[str, Flat]:
        """The tensors by name, as views of a flat array."""
        return dict(zip(self._names, self._parts(flat), strict=True))

    def _compiled(self) -> Any:
        """One step, for the settings that are now, whatever the learning rate."""
        rule, settings, structure = self.rule, dict(self._settings), self._structure

        def step(values: Any, gradients: Any, state: Any, rate: Any) -> Any:
            own = settings if rate is None else {**settings, RATE: rate}
            before = jax.tree.unflatten(structure, state)
            moves, after = made(rule, own).update(gradients, before, values)
            return optax.apply_updates(values, moves), jax.tree.leaves(after)

        return jax.jit(step)

    def _go_on_with(self, remembered: Sequence[Any]) -> None:
        check_state(remembered, self._state)
        self._state = [np.array(value, own.dtype) for value, own in zip(remembered, self._state, strict=True)]


def is_elementwise(rule: NativeOptimizer) -> bool:
    """True if the rule is one of `optax` that treats every element by itself, with settings that do."""
    chooses = any(callable(value) or isinstance(value, Mapping) for value in rule.made_with.values())
    return not chooses and _function(rule) in {getattr(optax, name, None) for name in ELEMENTWISE}


def tried(rule: NativeOptimizer) -> dict[str, Any]:
    """The numbers that an optimizer is made with, after a step on a small matrix; raises what is wrong."""
    if callable(rule.made_with.get(RATE)):
        raise ConfigurationError(
            f"{rule!r} has a function for its learning rate: give a number, and a schedule around it, as in "
            "Scheduled(OptaxOptimizer('sgd', learning_rate=0.1), learning_rate=Cosine(0.1, epochs=10))"
        )
    transformation = made(rule, rule.made_with)
    values = {WHOLE: np.ones((2, 2), np.float32)}
    gradients = {WHOLE: np.array([[0.5, -1.0], [2.0, 0.25]], np.float32)}
    try:
        transformation.update(gradients, transformation.init(values), values)
    except Exception as error:
        raise ConfigurationError(f"{rule!r} cannot do a step: {first_line(error)}") from error
    known = inspect.signature(_function(rule)).parameters.values()
    given = {each.name: each.default for each in known if is_number(each.default)}
    return given | {name: value for name, value in rule.made_with.items() if is_number(value)}


def made(rule: NativeOptimizer, settings: Settings) -> Any:
    """The gradient transformation with these settings."""
    try:
        found = _function(rule)(**settings)
    except Exception as error:
        raise ConfigurationError(f"{rule!r} cannot be made: {first_line(error)}") from error
    if not (hasattr(found, "init") and hasattr(found, "update")):
        raise ConfigurationError(
            f"{rule!r} is no optimizer: give the name of a function of optax, or a function that gives an "
            "optax.GradientTransformation"
        )
    return found


def _function(rule: NativeOptimizer) -> Callable[..., Any]:
    if not isinstance(rule.rule, str):
        if not callable(rule.rule):
            raise ConfigurationError(
                f"{rule.rule!r} is no function that makes an optimizer: give one such as optax.adamw, and "
                "its settings, as in OptaxOptimizer(optax.adamw, learning_rate=0.001)"
            )
        found: Callable[..., Any] = rule.rule
        return found
    return _named(rule.rule)


@functools.cache
def _named(name: str) -> Callable[..., Any]:
    functions = {each: value for each, value in vars(optax).items() if _makes_one(value)}
    found: Callable[..., Any] = named("optax", functions, name)
    return found


def _makes_one(value: Any) -> bool:
    """True for a function of Optax's that says it gives a gradient transformation of a learning rate."""
    if not inspect.isfunction(value) or not value.__module__.startswith("optax"):
        return False
    return "GradientTransformation" in str(inspect.signature(value).return_annotation)


def _without_rate(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != RATE}


ENGINE: Final = OptaxEngine
