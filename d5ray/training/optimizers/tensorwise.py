"""Rules that look at the model's tensors one by one"""

from abc import abstractmethod
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.training.optimizers.optimizer import STEPS, Optimizer, Slots, State, part_of

TENSORS = "tensors"  # in a state: one state for each tensor
SLOTS = "slots"
MISSED = "missed"  # in a state: the steps in which a tensor had no gradient, by its name


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
        self._move(x, gradient, state, frozenset())

    @final
    def step_without(self, x: Any, gradient: Any, state: State, unused: Slots) -> None:
        self.advance(state)
        names = frozenset(slot.name for slot in unused)
        missed = state.setdefault(MISSED, {})
        for name in names:
            missed[name] = missed.get(name, 0) + 1
        self._move(x, gradient, state, names)

    @final
    def grown(self, state: State, x: Any, before: Slots, now: Slots) -> State:
        own = dict(zip((slot.name for slot in before), state[TENSORS], strict=True))
        missed = dict(state.get(MISSED, {}))
        made = {}
        for slot in now:
            if slot.name not in own:
                made[slot.name] = self.tensor_state(part_of(x, slot).reshape(slot.shape))
                missed[slot.name] = state[STEPS]
        tensors = [(own | made)[slot.name] for slot in now]
        return {STEPS: state[STEPS], SLOTS: now, TENSORS: tensors, MISSED: missed}

    def _move(self, x: Any, gradient: Any, state: State, unused: frozenset[str]) -> None:
        missed = state.get(MISSED, {})
        for slot, own in zip(state[SLOTS], state[TENSORS], strict=True):
            if slot.size and slot.name not in unused:
                w, g = (part_of(each, slot).reshape(slot.shape) for each in (x, gradient))
                self.update_tensor(w, g, own, state[STEPS] - missed.get(slot.name, 0))
