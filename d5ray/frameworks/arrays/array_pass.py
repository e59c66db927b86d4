"""A pass over arrays: the operators forwards, and backwards from the loss to the trained parameters"""

from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, final

from d5ray.frameworks.arrays.library import ArrayModule
from d5ray.frameworks.arrays.steps import LEFT_OUT, Places, Step, steps
from d5ray.networks.events.event import BACKWARD, FORWARD
from d5ray.networks.events.observer import Observer
from d5ray.networks.executors.plan import Plan
from d5ray.networks.network import Network
from d5ray.operators.collectives import Collectives
from d5ray.operators.nodes.node import Node

Array = Any
Call = Callable[..., Any]
Taped = tuple[Step, Sequence[Array], Sequence[Array]]  # with inputs and outputs
OnGradient = Callable[[str, Array], None]


@final
class ArrayPass:
    """A plan's steps, run one after the other; a tensor is let go when nothing needs it any more.

    Tensors stand in a list of values, each at its place.

    held     by name, what an executor holds of the network
    wanted   the tensors that the plan is for, with their places
    state    what is replaced, with the place of what replaces it

    With an observer each operator stands between what tells it. All else is as for `steps`.
    """

    def __init__(
        self,
        network: Network,
        made: Plan,
        library: ArrayModule,
        held: Container[str],
        *,
        roots: Sequence[str] | None,
        sources: Sequence[str],
        random: Callable[[Node], Any],
        collectives: Collectives | None,
        observer: Observer | None = None,
    ) -> None:
        places = Places()
        own = steps(
            network,
            made,
            places,
            framework=library.name,
            roots=roots,
            sources=sources,
            random=random,
            collectives=collectives,
        )
        self._xp, self._steps = library.xp, tuple((step, any(step.wants)) for step in own)
        self._places = {
            name: place for step in own for name, place in zip(step.node.inputs, step.inputs, strict=True)
        }
        self._given = tuple((name, places[name]) for name in made.inputs)
        self._held = tuple((name, places[name]) for name in sorted(made.read) if name in held)
        self.wanted = tuple((name, places[name]) for name in made.wanted)
        self.state = tuple((old, places[new]) for old, new in made.state.items())
        self._count = len(places)
        if observer is None:
            self._forward: Call = _forward
            self._backward: Call = _backward
        else:
            self._forward, self._backward = _watched(observer)

    def values(self, inputs: Mapping[str, Array], held: Mapping[str, Array]) -> list[Array | None]:
        """The values (places,) that come from outside."""
        values: list[Array | None] = [None] * self._count
        for name, place in self._given:
            values[place] = inputs[name]
        for name, place in self._held:
            values[place] = held[name]
        return values

    def forward(self, values: list[Array | None]) -> list[Taped]:
        """Fill in what the steps make, and give a tape of what the backward pass needs.

        values (places,) hold what comes from outside.
        """
        xp, call = self._xp, self._forward
        tape: list[Taped] = []
        for step, differentiated in self._steps:
            given = [values[place] for place in step.inputs]
            made = call(xp, step, given)
            if differentiated:
                tape.append((step, given, made))
            for place, value in zip(step.outputs, made, strict=False):
                if place:
                    values[place] = value
            for place in step.frees:
                values[place] = None
        return tape

    def backward(self, tape: list[Taped], gradients: dict[int, Array], on_gradient: OnGradient) -> None:
        """The backward pass from these gradients; on_gradient(source, gradient) when one is complete."""
        xp, call = self._xp, self._backward
        own: set[int] = set()  # places whose gradient is an array of ours, which may be added to
        while tape:
            step, given, made = tape.pop()
            arrived = [gradients.pop(place, None) if place else None for place in step.outputs]
            own.difference_update(step.outputs)
            if any(gradient is not None for gradient in arrived):
                arrived += [None] * (len(made) - len(arrived))
                found = call(xp, step, arrived, given, made)
                for place, gradient in zip(step.wants, found, strict=False):
                    if place and gradient is not None:
                        _add(gradients, own, place, gradient)
                found = gradient = None
            del given, made, arrived
            for name in step.complete:
                on_gradient(name, gradients.pop(self._places[name], None))


def _add(gradients: dict[int, Array], own: set[int], place: int, gradient: Array) -> None:
    """An operator may give the same array for two inputs, so only sums are added to in place."""
    before = gradients.get(place)
    if before is None:
        gradients[place] = gradient
    elif place in own:
        before += gradient
    else:
        gradients[place] = before + gradient
        own.add(place)


def _forward(xp: Any, step: Step, given: Sequence[Array | None]) -> Sequence[Array]:
    made: Sequence[Array] = step.operator.forward(xp, step.context, given)
    return made


def _backward(
    xp: Any, step: Step, arrived: Sequence[Array | None], given: Sequence[Array | None], made: Sequence[Array]
) -> Sequence[Array | None]:
    found: Sequence[Array | None] = step.operator.backward(xp, step.context, arrived, given, made)
    return found


def _watched(observer: Observer) -> tuple[Call, Call]:
    """The forward and backward calls between what tells the observer."""

    def forward(xp: Any, step: Step, given: Sequence[Array | None]) -> Sequence[Array]:
        shown = tuple(given)
        observer.before_operator(step.node, step.index, FORWARD, shown)
        made = _forward(xp, step, given)
        observer.after_operator(step.node, step.index, FORWARD, shown, tuple(made[: len(step.outputs)]))
        return made

    def backward(
        xp: Any,
        step: Step,
        arrived: Sequence[Array | None],
        given: Sequence[Array | None],
        made: Sequence[Array],
    ) -> Sequence[Array | None]:
        shown = tuple(arrived[: len(step.outputs)])
        observer.before_operator(step.node, step.index, BACKWARD, shown)
        found = _backward(xp, step, arrived, given, made)
        wanted = tuple(
            gradient if place != LEFT_OUT else None
            for gradient, place in zip(found, step.wants, strict=False)
        )
        observer.after_operator(step.node, step.index, BACKWARD, shown, wanted)
        return found

    return forward, backward
