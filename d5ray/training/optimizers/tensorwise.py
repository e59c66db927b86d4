"""Rules that look at the model's tensors one by one"""

from abc import abstractmethod
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.training.optimizers.optimizer import STEPS, Optimizer, Slots, State

TENSORS = "tensors"  # in a state: one state for each tensor
SLOTS = "slots"


class TensorwiseOptimizer(Optimizer):
    """Every tensor w of the model is moved by itself, in its own shape."""

    whole = True
    tensorwise = True

    @abstractmethod
    def tensor_state(self, w: Any) -> State:
        """The rule's state of a tensor before the first step."""

    @abstractmethod
    def update_tensor(self, w: Any, gradient: Any, state: State, step: int) -> None:
        """Move w in place by its gradient, at this step, from 1."""

    @final
    def state(self, x: Any) -> State:
        raise ConfigurationError(
            f"{self!r} looks at whole tensors of the model, and here only a part of the flat parameters is "
            "known: choose an element-wise rule such as SGD or Adam, or a distributed optimizer whose agents "
            "hold all parameters"
        )

    @final
    def state_for(self, x: Any, slots: Slots) -> State:
        if sum(slot.size for slot in slots) != len(x):
            return self.state(x)
        tensors = [self.tensor_state(x[s.offset : s.offset + s.size].reshape(s.shape)) for s in slots]
        return {STEPS: 0, SLOTS: slots, TENSORS: tensors}

    @final
    def update(self, x: Any, gradient: Any, state: State) -> None:
        for slot, own in zip(state[SLOTS], state[TENSORS], strict=True):
            part = slice(slot.offset, slot.offset + slot.size)
            w, g = x[part].reshape(slot.shape), gradient[part].reshape(slot.shape)
            self.update_tensor(w, g, own, state[STEPS])
