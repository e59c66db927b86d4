"""A rule with schedules for its hyperparameters, such as a learning-rate schedule"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

from d5ray.errors import ConfigurationError, nearest
from d5ray.training.batches.epochs import Epochs
from d5ray.training.optimizers.gradient_transformations import WrappedRule
from d5ray.training.optimizers.optimizer import Optimizer, Slots, State
from d5ray.training.schedules import Multiplied, Schedule

NOTHING = sys.float_info.min  # for a 0, which rules refuse as a mistake: it is 0 in float32
RATE = "learning_rate"
MOMENT = "moment"  # in a state: the update of the run, from 0, that is under way


@final
@dataclass(frozen=True, init=False)
class Scheduled(WrappedRule):
    """Scheduled(Momentum(0.1, 0.9), learning_rate=Cosine(0.1, 90)): a rule with schedules for some fields.

    The named fields have their schedules' values at every step of the run, the others those of the rule. With
    asynchronous parameter servers, a step of the run is as many updates as there are agents.
    """

    changing: Mapping[str, Schedule] = field(default_factory=dict)
    epochs: Epochs | None = None
    updates_per_step: int = 1

    def __init__(self, rule: Optimizer, **schedules: Schedule) -> None:
        self._set(rule=rule, changing=schedules, epochs=None, updates_per_step=1)
        super().__post_init__()
        if not schedules:
            raise ConfigurationError(
                f"no schedule for {rule!r}: give one, as in learning_rate=Cosine(0.1, 90)"
            )
        for name, schedule in schedules.items():
            if name not in rule.hyperparameters:
                raise ConfigurationError(
                    f"{rule!r} has no {name!r} that could change: {nearest(name, rule.hyperparameters)}"
                )
            if not isinstance(schedule, Schedule):
                raise ConfigurationError(
                    f"{name} is {schedule!r}: it must be a Schedule such as Cosine(0.1, 90)"
                )
        self._rule(0, 0)

    def __repr__(self) -> str:
        changing = ", ".join(f"{name}={schedule!r}" for name, schedule in self.changing.items())
        return f"Scheduled({self.rule!r}, {changing})"

    @property
    def single_pass(self) -> bool:
        return self.rule.single_pass

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        return (*self.changing.values(), *self.rule.schedules)

    def timed(self, epochs: Epochs | int, updates_per_step: int = 1) -> Self:
        timed = type(self)(self.rule.timed(epochs, updates_per_step), **self.changing)
        known = Epochs.even(epochs) if isinstance(epochs, int) else epochs
        timed._set(epochs=known, updates_per_step=updates_per_step)
        return timed

    def at(self, step: int) -> Optimizer:
        by_epoch = [schedule for schedule in self.changing.values() if schedule.unit == "epoch"]
        if self.epochs is None and by_epoch:
            raise ConfigurationError(
                f"{by_epoch[0]!r} counts epochs, and nobody said how many steps one has: train an "
                "Experiment, or call timed(steps_per_epoch)"
            )
        return self._rule(step, self.epochs.position(step)[0] if self.epochs is not None else 0)

    def current(self, state: State) -> Optimizer:
        return self.at(state[MOMENT] // self.updates_per_step).current(state)

    def begin_at(self, state: State, step: int) -> None:
        state[MOMENT] = step * self.updates_per_step - 1
        super().begin_at(state, step)

    def state(self, x: Any) -> State:
        return super().state(x) | {MOMENT: -1}

    def state_for(self, x: Any, slots: Slots) -> State:
        return super().state_for(x, slots) | {MOMENT: -1}

    def grown(self, state: State, x: Any, before: Slots, now: Slots) -> State:
        return super().grown(state, x, before, now) | {MOMENT: state[MOMENT]}

    def advance(self, state: State) -> None:
        state[MOMENT] += 1
        self.at(state[MOMENT] // self.updates_per_step).advance(state)

    def step_without(self, x: Any, gradient: Any, state: State, unused: Slots) -> None:
        state[MOMENT] += 1
        self.at(state[MOMENT] // self.updates_per_step).step(x, gradient, state, unused)

    def update(self, x: Any, gradient: Any, state: State) -> None:
        self.current(state).update(x, gradient, state)

    def with_rate(self, learning_rate: float) -> Self:
        raise ConfigurationError(f"the learning rate of {self!r} is that of a step: ask for at(step) first")

    def scaled(self, factor: float) -> Self:
        changing = dict(self.changing)
        rates = [name for name in changing if name in (RATE, getattr(self.rule, "rate_name", RATE))]
        for name in rates:
            changing[name] = Multiplied(changing[name], factor)
        changed = type(self)(self.rule if rates else self.rule.scaled(factor), **changing)
        changed._set(epochs=self.epochs, updates_per_step=self.updates_per_step)
        return changed

    def _rule(self, step: int, epoch: int) -> Optimizer:
        numbers = {name: schedule.at(step, epoch) or NOTHING for name, schedule in self.changing.items()}
        return self.rule.with_values(**numbers)

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)
