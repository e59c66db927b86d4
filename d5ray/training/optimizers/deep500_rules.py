"""Rules as Deep500 writes them, tensor by tensor under its name: one step, or three"""

import copy
from abc import abstractmethod
from typing import Any, final

from d5ray.checks import check_rate
from d5ray.errors import ConfigurationError
from d5ray.training.optimizers.optimizer import Optimizer, Slots, State


class ThreeStepOptimizer(Optimizer):
    """A rule in three steps: `new_input` once, then `prepare_param` and `update_rule` for every tensor.

    What a subclass remembers it keeps in attributes, made in `__init__`; whoever trains gets a copy of its
    own. Tensors are arrays of the framework in the model's shapes; their names are the model's.
    """

    whole = True
    tensorwise = True
    prepares = True

    def __init__(self, learning_rate: float = 1.0) -> None:
        check_rate("learning_rate", learning_rate)
        self.learning_rate = learning_rate

    def new_input(self) -> None:
        """Called when a step begins."""

    def prepare_param(self, param_name: str) -> Any:
        """The value of a tensor at which the gradient is to be taken; None: where it is."""
        return None

    @abstractmethod
    def update_rule(self, grad: Any, old_param: Any, param_name: str) -> Any:
        """The tensor's new value. old_param: the value at which the gradient was taken."""

    @final
    def state(self, x: Any) -> State:
        return self.state_for(x, ())

    @final
    def state_for(self, x: Any, slots: Slots) -> State:
        if sum(slot.size for slot in slots) != len(x):
            raise ConfigurationError(f"{self!r} needs the model's tensors by name: give it whole models")
        return {"rule": copy.deepcopy(self), "slots": slots}

    @final
    def prepare(self, x: Any, state: State) -> None:
        rule: ThreeStepOptimizer = state["rule"]
        rule.new_input()
        for slot in state["slots"]:
            value = rule.prepare_param(slot.name)
            if value is not None:
                x[slot.offset : slot.offset + slot.size] = value.reshape(-1)

    @final
    def update(self, x: Any, gradient: Any, state: State) -> None:
        self.step_without(x, gradient, state, ())

    @final
    def step_without(self, x: Any, gradient: Any, state: State, unused: Slots) -> None:
        rule: ThreeStepOptimizer = state["rule"]
        for slot in state["slots"]:
            if slot in unused:
                continue
            part = slice(slot.offset, slot.offset + slot.size)
            old, g = x[part].reshape(slot.shape), gradient[part].reshape(slot.shape)
            new = rule.update_rule(g, old, slot.name)
            if getattr(new, "shape", None) != old.shape:
                raise ConfigurationError(
                    f"{type(self).__name__}.update_rule returned {_described(new)} for {slot.name}: it must "
                    f"return the new tensor, of shape {tuple(old.shape)}"
                )
            x[part] = new.reshape(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(learning_rate={self.learning_rate!r})"


class UpdateRuleOptimizer(ThreeStepOptimizer):
    """A rule in one step, `update_rule`, with the gradient taken where the parameters are."""

    @final
    def new_input(self) -> None:
        pass

    @final
    def prepare_param(self, param_name: str) -> Any:
        return None


def _described(value: object) -> str:
    shape = getattr(value, "shape", None)
    return f"an array of shape {tuple(shape)}" if shape is not None else repr(value)
