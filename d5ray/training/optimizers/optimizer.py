"""Optimizer: an update rule as frozen data that updates flat parameters in place by a flat gradient"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from typing import Annotated, Any, Final, Self, final

from d5ray.checks import KnownKeywords, check_count, check_rate, check_share, with_settings
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.training.arrays import copy_of, fuses, in_host_memory
from d5ray.training.batches.epochs import Epochs
from d5ray.training.schedules import Schedule

# The types of hyperparameters, each with the check of a value.
Rate = Annotated[float, check_rate]
RateOrZero = Annotated[float, partial(check_rate, zero=True)]
Share = Annotated[float, check_share]
Count = Annotated[int, check_count]

State = dict[str, Any]
Slots = tuple[Slot, ...]
BLOCK = 2**18  # elements: a block of x and of all that belongs to it stays in the cache
HINTS: Final = {
    "lr": "the learning rate is learning_rate=0.1, or first",
    "betas": "they are beta1=0.9 and beta2=0.999",
    "eps": "it is epsilon=1e-8",
    "alpha": "it is decay=0.99",
    "weight_decay": "wrap it, as in WeightDecay(SGD(0.1), 1e-4); AdamW has its own",
    "momentum": "take Momentum(0.1, 0.9)",
    "nesterov": "take Nesterov(0.1, 0.9)",
    "params": "agents have models of their own: leave it out",
    "clipnorm": "wrap it, as in ClipNorm(SGD(0.1), 1.0)",
}  # instead of what other libraries take
STEPS = "t"  # in a state: the steps so far, this one included
PARTS = "parts"  # in a state: those of parts of x, of which not all had a gradient in every step


class Optimizer(KnownKeywords, ABC):
    """An update rule as frozen data; its state between steps is a separate object.

    The same rule works on the arrays of NumPy, PyTorch and CuPy. A subclass is a frozen dataclass with a
    `learning_rate`; it has `state` and `update`, where `state["t"]`, if it exists, counts the steps. Values
    of `Rate`, `RateOrZero`, `Share` and `Count`, or of an annotated type with another check, are checked.

    elementwise: whether the rule treats every coordinate separately, and its state consists of arrays like x
    and numbers, so that a part of x can be updated with the same part of the others. single_pass: whether it
    reads x only once, if the framework can, so that blocks that fit the cache are not faster. whole: whether
    it needs all parameters at once, so that it cannot be divided over shards and buckets. tensorwise: whether
    it needs the places of the model's tensors. prepares: whether it has a `prepare`.
    """

    learning_rate: float
    _hints = HINTS

    def __post_init__(self) -> None:
        for name, check in _checks(type(self)).items():
            check(name, getattr(self, name))

    def __repr__(self) -> str:
        return with_settings(self)

    @property
    def elementwise(self) -> bool:
        """True if a coordinate's update depends on that coordinate alone."""
        return False

    @property
    def single_pass(self) -> bool:
        """True if the rule reads x only once, so that blocks that fit the cache are not faster."""
        return False

    @property
    def whole(self) -> bool:
        """True if the rule needs all parameters at once: no shards, no buckets."""
        return False

    @property
    def tensorwise(self) -> bool:
        """True if the rule needs to know which part of x is which tensor of the model."""
        return False

    @property
    def prepares(self) -> bool:
        """True if `prepare` moves x before the gradient is computed."""
        return False

    def state(self, x: Any) -> State:
        """The rule's state before the first step for parameters x (n,): empty by default."""
        return {}

    def state_for(self, x: Any, slots: Slots) -> State:
        """The `state` for a model whose tensors are at these slots of x (n,); for tensor-wise rules."""
        return self.state(x)

    def advance(self, state: State) -> None:
        """Called once at the beginning of a step: change the numbers in the state."""
        if STEPS in state:
            state[STEPS] += 1

    def prepare(self, x: Any, state: State) -> None:
        """Called before a gradient is computed: move x to where it is to be computed."""

    @abstractmethod
    def update(self, x: Any, gradient: Any, state: State) -> None:
        """Update the flat parameters x (n,) in place by the flat gradient (n,), which stays unchanged."""

    @final
    def step(self, x: Any, gradient: Any, state: State, unused: Slots = ()) -> None:
        """One step: `advance`, then `update`, in blocks that fit the cache if that gives the same result.

        unused: the tensors without a gradient, whatever is in its place; neither they nor their state
        change, as under PyTorch.
        """
        if unused or PARTS in state:
            self.step_without(x, gradient, state, unused)
            return
        self.advance(state)
        for block, own in self.blocks(x, state):
            self.update(x[block], gradient[block], own)

    def step_without(self, x: Any, gradient: Any, state: State, unused: Slots) -> None:
        """A step in which these tensors have no gradient.

        An element-wise rule has a state for every part of x whose tensors always had gradients together. Any
        other rule gets a gradient of zero, and these parts of x are restored; a subclass may override this.
        """
        if self.elementwise:
            self._step_in_parts(x, gradient, state, unused)
            return
        kept = [(part_of(x, slot), copy_of(part_of(x, slot))) for slot in unused]
        self.advance(state)
        self.update(x, gradient, state)
        for view, value in kept:
            view[...] = value

    @final
    def _step_in_parts(self, x: Any, gradient: Any, state: State, unused: Slots) -> None:
        """A step of every part of x whose tensors have a gradient, each with a state of its own."""
        before = state.get(PARTS) or {(0, len(x)): dict(state)}
        ends = {end for slot in unused for end in (slot.offset, slot.offset + slot.size)}
        parts: dict[tuple[int, int], State] = {}
        for (begin, end), own in before.items():
            inside = sorted(each for each in ends if begin < each < end)
            for low, high in pairwise((begin, *inside, end)):
                cut = slice(low - begin, high - begin)
                parts[low, high] = self.part(own, cut, end - begin) if inside else own
        state[PARTS] = parts
        for (begin, end), own in parts.items():
            if not any(slot.offset <= begin and end <= slot.offset + slot.size for slot in unused):
                self.step(x[begin:end], gradient[begin:end], own)

    def grown(self, state: State, x: Any, before: Slots, now: Slots) -> State:
        """The state for x with more tensors than before; each old tensor keeps its own.

        Raises `ConfigurationError` for a rule that is neither element-wise nor knows tensors.
        """
        if not self.elementwise:
            raise ConfigurationError(
                f"parameters were released by requires_grad_(True) in training, and {self!r} looks at all "
                "parameters together: choose an element-wise rule such as SGD or Adam, or let them require "
                "gradients from the start"
            )
        return self._grown_in_parts(state, x, before, now)

    @final
    def _grown_in_parts(self, state: State, x: Any, before: Slots, now: Slots) -> State:
        length = sum(slot.size for slot in before)
        own, old = state.get(PARTS) or {(0, length): state}, {slot.name: slot for slot in before}
        parts: dict[tuple[int, int], State] = {}
        for slot in filter(lambda slot: slot.size, now):
            place = slot.offset, slot.offset + slot.size
            if slot.name not in old:
                parts[place] = self.state(part_of(x, slot))
                continue
            first = old[slot.name].offset
            begin, end = next(each for each in own if each[0] <= first < each[1])
            cut = slice(first - begin, first - begin + slot.size)
            parts[place] = self.part(own[begin, end], cut, end - begin)
        return {PARTS: parts}

    def part(self, state: State, part: slice, length: int) -> State:
        """The state of a part of x (length,), of an element-wise rule's state of the whole."""
        return _cut(state, part)

    @final
    def blocks(self, x: Any, state: State) -> Iterator[tuple[slice, State]]:
        """The parts of x with which `update` may be called, each with its state; one for all of x."""
        once = self.single_pass and fuses(x)
        if len(x) <= BLOCK or once or not self.elementwise or not in_host_memory(x):
            yield slice(None), state
            return
        for begin in range(0, len(x), BLOCK):
            block = slice(begin, begin + BLOCK)
            yield block, _cut(state, block)

    @property
    def schedules(self) -> tuple[Schedule, ...]:
        """The schedules of its hyperparameters."""
        return ()

    def timed(self, epochs: Epochs | int, updates_per_step: int = 1) -> Self:
        """The rule for a run with these epochs, or steps per epoch, and this number of updates per step."""
        return self

    def at(self, step: int) -> "Optimizer":
        """The rule at a step of the run, from 0; it differs between steps only by schedules."""
        return self

    def current(self, state: State) -> "Optimizer":
        """The rule in the step that began with `advance`."""
        return self

    def begin_at(self, state: State, step: int) -> None:
        """Let a new state start at this step of the run."""

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """The names that `with_values` takes."""
        rule: Any = self
        return tuple(each.name for each in dataclasses.fields(rule)) if dataclasses.is_dataclass(rule) else ()

    def with_values(self, **values: Any) -> Self:
        """A copy of the rule with other hyperparameters; both can use each other's states."""
        return dataclasses.replace(self, **values)  # type: ignore[type-var]

    def with_rate(self, learning_rate: float) -> Self:
        """A copy of the rule with another learning rate; both can use each other's states."""
        return self.with_values(learning_rate=learning_rate)

    def scaled(self, factor: float) -> Self:
        """A copy of the rule whose learning rate is `factor` times its own, at every step of a schedule."""
        return self.with_rate(self.learning_rate * factor)


@cache
def _checks(kind: type) -> dict[str, Callable[[str, object], None]]:
    """The checks of hyperparameters that a class's annotations have, in the order of its fields."""
    return {
        name: check
        for base in reversed(kind.__mro__)
        for name, annotation in vars(base).get("__annotations__", {}).items()
        for check in getattr(annotation, "__metadata__", ())
        if callable(check)
    }


def _cut(state: State, part: slice) -> State:
    return {name: v if isinstance(v, (int, float)) else v[part] for name, v in state.items()}


def part_of(x: Any, slot: Slot) -> Any:
    """The part of flat parameters (n,) where a tensor lies, flat."""
    return x[slot.offset : slot.offset + slot.size]
