"""Optimizers that a framework brings, used as d5ray's own are: what all frameworks' have in common"""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, cast, final

from d5ray.errors import ConfigurationError, nearest
from d5ray.training.optimizers.optimizer import Optimizer, Slots, State

NATIVE = "native"  # in a state: what the framework's optimizer remembers
SLOTS = "slots"
ENGINE = "engine"
Settings = Mapping[str, Any]


class Engine(ABC):
    """A framework's optimizer at work on one x. Copies and pickles of it are None: it is made anew."""

    _given: tuple[Any, ...] = ()

    @final
    def memory(self) -> dict[str, Any]:
        """The engine's memory as it is now; see `fits`."""
        found = self.remembered()
        self._given = tuple(found.values())
        return found

    @final
    def fits(self, memory: Mapping[str, Any]) -> bool:
        """True if the memory is the one that the engine gave last, no copy, and nothing read back."""
        given = self._given
        return len(given) == len(memory) and all(a is b for a, b in zip(given, memory.values(), strict=True))

    @final
    def __reduce__(self) -> Any:
        return _nothing, ()

    @abstractmethod
    def step(self, x: Any, gradient: Any, settings: Settings) -> None:
        """Move x (n,) in place by the gradient (n,), with these hyperparameters."""

    def step_without(self, x: Any, gradient: Any, settings: Settings, unused: Slots) -> bool:
        """Do such a step where these tensors have no gradient; False, and nothing done, where it cannot."""
        return False

    @abstractmethod
    def remembered(self) -> dict[str, Any]:
        """The engine's state between steps, as dictionaries and lists of arrays and plain values.

        They may be the ones that the next step changes: whoever keeps them copies them.
        """


@dataclass(frozen=True, init=False)
class NativeOptimizer(Optimizer):
    """An optimizer of a framework, by name, as a class, or as a function that makes one; and its settings.

    A subclass for each framework checks the settings with `tried`, and says with `engine` how a step is done.
    What the optimizer remembers stands in the state as plain data, so that it can be copied, written down and
    read back: a state without an engine gets one at its next step. Settings may change from step to step.
    """

    rule: Any
    settings: Settings = field(default_factory=dict)

    def __init__(self, rule: Any, **settings: Any) -> None:
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "settings", settings)
        own = self.__dict__  # no fields: they follow from the others
        own["_made_with"] = settings  # also when `settings` follow a schedule
        own["_first"] = self.tried()

    @abstractmethod
    def tried(self) -> Settings:
        """The numbers that the framework's optimizer is made with, after a step on a small matrix.

        Raises `ConfigurationError` where it cannot be made, or cannot do a step.
        """

    @final
    def defaults(self) -> Settings:
        """Every setting that can be changed, with its value here."""
        return {**self.first, **self.settings}

    @final
    @property
    def made_with(self) -> Settings:
        """The settings with which the framework's optimizer is made; those of a step are set afterwards."""
        return cast(Settings, self.__dict__["_made_with"])

    @final
    @property
    def first(self) -> Settings:
        """The settings that `tried` gave."""
        return cast(Settings, self.__dict__["_first"])

    @property
    def whole(self) -> bool:
        """True if the framework's optimizer must know the tensors."""
        return self.tensorwise

    @abstractmethod
    def engine(self, x: Any, slots: Slots, remembered: Mapping[str, Any] | None) -> Engine:
        """The framework's optimizer for x, going on with what was remembered, if anything.

        slots: where the tensors lie that it treats one by one; none: x is one.
        """

    @property
    @abstractmethod
    def rate_name(self) -> str:
        """The framework's name for the learning rate."""

    @property
    def learning_rate(self) -> float:  # type: ignore[override]
        """The framework's setting for the learning rate. Raises ConfigurationError where it has none."""
        values = self.defaults()
        if self.rate_name not in values:
            raise ConfigurationError(f"{self!r} has no {self.rate_name!r}, so nobody can ask for its rate")
        return float(values[self.rate_name])

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        return ("learning_rate", *self.defaults())

    @final
    def with_values(self, **values: Any) -> Self:
        if "learning_rate" in values:
            values[self.rate_name] = values.pop("learning_rate")
        changed = copy.copy(self)  # a schedule comes here at every step: the framework is not asked again
        object.__setattr__(changed, "settings", {**self.settings, **values})
        return changed

    @final
    def state(self, x: Any) -> State:
        if self.tensorwise:
            raise ConfigurationError(
                f"{self!r} treats the model's tensors one by one, and here only a part of the flat "
                "parameters is known: choose an element-wise rule such as SGD or Adam, or a distributed "
                "optimizer whose agents hold all parameters"
            )
        return self._begun(x, ())

    @final
    def state_for(self, x: Any, slots: Slots) -> State:
        if not self.tensorwise:
            return self._begun(x, ())
        return self._begun(x, slots) if sum(slot.size for slot in slots) == len(x) else self.state(x)

    @final
    def update(self, x: Any, gradient: Any, state: State) -> None:
        engine = self._engine_of(x, state)
        engine.step(x, gradient, self.settings)
        state[NATIVE] = engine.memory()

    @final
    def step_without(self, x: Any, gradient: Any, state: State, unused: Slots) -> None:
        if not self.tensorwise:
            self._step_in_parts(x, gradient, state, unused)
            return
        engine = self._engine_of(x, state)
        if engine.step_without(x, gradient, self.settings, unused):
            state[NATIVE] = engine.memory()
        else:
            super().step_without(x, gradient, state, unused)

    @final
    def grown(self, state: State, x: Any, before: Slots, now: Slots) -> State:
        if not self.tensorwise:
            return self._grown_in_parts(state, x, before, now)
        own = dict(zip((slot.name for slot in before), state[NATIVE]["tensors"], strict=True))
        memory = {**state[NATIVE], "tensors": [own.get(slot.name, {}) for slot in now]}
        return {SLOTS: now, NATIVE: memory}

    @final
    def part(self, state: State, part: slice, length: int) -> State:
        return {SLOTS: (), NATIVE: _cut(state[NATIVE], part, length)}

    def _engine_of(self, x: Any, state: State) -> Engine:
        engine: Engine | None = state.get(ENGINE)
        if engine is None or not engine.fits(state[NATIVE]):
            engine = state[ENGINE] = self.engine(x, state[SLOTS], state[NATIVE])
        return engine

    def __repr__(self) -> str:
        rule = repr(self.rule) if isinstance(self.rule, str) else getattr(self.rule, "__name__", self.rule)
        settings = "".join(f", {name}={value!r}" for name, value in self.settings.items())
        return f"{type(self).__name__}({rule}{settings})"

    def _begun(self, x: Any, slots: Slots) -> State:
        engine = self.engine(x, slots, None)
        return {SLOTS: slots, NATIVE: engine.memory(), ENGINE: engine}


def is_number(value: object) -> bool:
    """True for a setting that a schedule may change."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def classes_in(module: Any, base: type) -> dict[str, Any]:
    """The classes of a module that are derived from this one, by name."""
    own = {name: kind for name, kind in vars(module).items() if inspect.isclass(kind) and kind is not base}
    return {name: kind for name, kind in own.items() if issubclass(kind, base)}


def named(place: str, known: Mapping[str, Any], name: str) -> Any:
    """The optimizer of this name, in any case of letters; raises `ConfigurationError` with the nearest."""
    found = {each.lower(): kind for each, kind in known.items()}
    if name.lower() not in found:
        raise ConfigurationError(f"{place} has no optimizer {name!r}: {nearest(name, known)}")
    return found[name.lower()]


def _cut(memory: Any, part: slice, length: int) -> Any:
    """What an optimizer remembers of a vector (length,), of a part of it."""
    if isinstance(memory, Mapping):
        return {name: _cut(item, part, length) for name, item in memory.items()}
    if isinstance(memory, (list, tuple)):
        return type(memory)(_cut(item, part, length) for item in memory)
    return memory[part] if getattr(memory, "shape", None) == (length,) else memory


def _nothing() -> None:
    """None, which stands for the engine in a copy of its owner."""
