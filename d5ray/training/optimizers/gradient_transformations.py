"""Gradient transformations that wrap any rule: weight decay, gradient clipping"""

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self, final

from d5ray.errors import ConfigurationError
from d5ray.training.arrays import clipped, norm
from d5ray.training.batches.epochs import Epochs
from d5ray.training.optimizers.optimizer import Optimizer, Rate, RateOrZero, Slots, State
from d5ray.training.schedules import Schedule


@dataclass(frozen=True)
class WrappedRule(Optimizer):
    """A wrapper of another rule, which has the state."""

    rule: Optimizer

    def __post_init__(self) -> None:
        if not isinstance(self.rule, Optimizer):
            raise ConfigurationError(f"rule is {self.rule!r}: it must be an Optimizer such as SGD(0.1)")
        super().__post_init__()

    @property
    def learning_rate(self) -> float:  # type: ignore[override]
        """The learning rate of the rule inside."""
        return self.rule.learning_rate

    @property
    def elementwise(self) -> bool:
        return self.rule.elementwise

    @property
    def whole(self) -> bool:
        return self.rule.whole

    @property
    def tensorwise(self) -> bool:
        return self.rule.tensorwise

    @property
    def prepares(self) -> bool:
        return self.rule.prepares

    def state(self, x: Any) -> State:
        return self.rule.state(x)

    def state_for(self, x: Any, slots: Slots) -> State:
        return self.rule.state_for(x, slots)

    def advance(self, state: State) -> None:
        self.rule.advance(state)

    def prepare(self, x: Any, state: State) -> None:
        self.rule.prepare(x, state)

    def grown(self, state: State, x: Any, before: Slots, now: Slots) -> State:
        return self.rule.grown(state, x, before, now)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        return self.rule.schedules

    def timed(self, epochs: Epochs | int, updates_per_step: int = 1) -> Self:
        return dataclasses.replace(self, rule=self.rule.timed(epochs, updates_per_step))

    def at(self, step: int) -> Optimizer:
        return dataclasses.replace(self, rule=self.rule.at(step))

    def current(self, state: State) -> Optimizer:
        return dataclasses.replace(self, rule=self.rule.current(state))

    def begin_at(self, state: State, step: int) -> None:
        self.rule.begin_at(state, step)

    def with_rate(self, learning_rate: float) -> Self:
        return dataclasses.replace(self, rule=self.rule.with_rate(learning_rate))

    def scaled(self, factor: float) -> Self:
        return dataclasses.replace(self, rule=self.rule.scaled(factor))


@dataclass(frozen=True)
class GradientTransformation(WrappedRule):
    """A wrapper that gives a rule a changed gradient."""

    @final
    def update(self, x: Any, gradient: Any, state: State) -> None:
        self.rule.update(x, self.changed(gradient, x), state)

    @final
    def step_without(self, x: Any, gradient: Any, state: State, unused: Slots) -> None:
        self.rule.step(x, self.changed(gradient, x), state, unused)

    @abstractmethod
    def changed(self, gradient: Any, x: Any) -> Any:
        """A new gradient (n,); the old one stays as it is."""


@final
@dataclass(frozen=True)
class WeightDecay(GradientTransformation):
    """g + λ x   (the gradient of ½ λ ‖x‖²; with Adam it is not what `AdamW` does)."""

    decay: RateOrZero

    def changed(self, gradient: Any, x: Any) -> Any:
        return gradient + self.decay * x


@final
@dataclass(frozen=True)
class ClipValue(GradientTransformation):
    """Gradient clipping by value: g with every coordinate clipped to [−c, c]."""

    limit: Rate

    def changed(self, gradient: Any, x: Any) -> Any:
        return clipped(gradient, self.limit)


@final
@dataclass(frozen=True)
class ClipNorm(GradientTransformation):
    """Gradient clipping: g min(1, c / ‖g‖), the norm of all parameters (Pascanu et al., arXiv:1211.5063)."""

    limit: Rate

    @property
    def elementwise(self) -> bool:
        """False: the norm is that of all parameters."""
        return False

    @property
    def whole(self) -> bool:
        """True: the norm is that of all parameters."""
        return True

    def changed(self, gradient: Any, x: Any) -> Any:
        length = norm(gradient)
        return gradient * (self.limit / length) if length > self.limit else gradient
