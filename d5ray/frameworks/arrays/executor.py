"""The executor of a Network over an array module: NumPy, or CuPy"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, final

import numpy as np

from d5ray.frameworks.arrays.array_pass import ArrayPass
from d5ray.frameworks.arrays.library import ArrayModule
from d5ray.frameworks.arrays.steps import SeededGenerator
from d5ray.networks.device import CPUDevice, Device
from d5ray.networks.events.event import GraphEvent
from d5ray.networks.events.observer import Observer
from d5ray.networks.executors.graph_executor import Array, Arrays, GraphExecutor, Run, check_one_number
from d5ray.networks.executors.plan import Plan
from d5ray.networks.network import Network
from d5ray.operators.collectives import Collectives


@final
class ArrayExecutor(GraphExecutor):
    """Operator by operator; gradients in reverse order, summed where a tensor is used several times.

    Only what leads from a trained parameter to the loss is differentiated, and a tensor's memory is let go
    as soon as nothing needs it any more.
    """

    def __init__(
        self,
        network: Network,
        library: ArrayModule,
        device: Device = CPUDevice(),  # noqa: B008 - frozen data
        events: GraphEvent | Sequence[GraphEvent] = (),
        *,
        trained: Iterable[str] | None = None,
        seed: int = 0,
        collectives: Collectives | None = None,
    ) -> None:
        self._library = library
        self._values: dict[str, Any] = {}
        self._gradients: dict[str, Any] = {}
        self._bound: Mapping[str, Any] = {}
        self._in_place: frozenset[str] = frozenset()
        self.on_gradient: Callable[[str], None] | None = None  # told of each parameter's, when it is there
        self._begun = 0, 0  # training passes that draw, and the seed of the last one
        self._random = SeededGenerator(library.generator, lambda: self._begun)
        super().__init__(network, library, device, events, trained, seed, collectives)

    def bind(
        self, parameters: Mapping[str, Any], gradients: Mapping[str, Any], state: Mapping[str, Any]
    ) -> None:
        """Use these arrays for trained parameters and state, and write gradients and the next state there."""
        self._values |= {**parameters, **state}
        self._bound, self._in_place = gradients, frozenset(state)

    def _build(self, made: Plan, loss: str | None, observer: Observer | None) -> Run:
        library = self._library
        passed = ArrayPass(
            self.network,
            made,
            library,
            self._values,
            roots=None if loss is None else (loss,),
            sources=self._trained,
            random=lambda _: self._random,
            collectives=self.collectives,
            observer=observer,
        )
        wanted, state = passed.wanted, passed.state

        def values_of(inputs: Arrays) -> list[Any]:
            return passed.values({name: library.put(inputs[name]) for name in made.inputs}, self._values)

        def outputs_of(values: list[Any], others: frozenset[int]) -> dict[str, Array]:
            """The outputs in memory that is not the network's, and not the caller's inputs."""
            found = {name: library.get(values[place]) for name, place in wanted}
            return {name: np.array(v) if id(v) in others else v for name, v in found.items()}

        def infer(inputs: Arrays) -> dict[str, Array]:
            with library.computing():
                values = values_of(inputs)
                others = frozenset(map(id, values))
                passed.forward(values)
                return outputs_of(values, others)

        if loss is None:
            return infer
        loss_place = dict(wanted)[loss]

        def train(inputs: Arrays) -> dict[str, Array]:
            begin = perf_counter_ns()
            with library.computing():
                values = values_of(inputs)
                others = frozenset(map(id, values))
                tape = passed.forward(values)
                check_one_number(loss, values[loss_place].shape)
                outputs = outputs_of(values, others)
                new = [(old, values[place]) for old, place in state]
                seed = library.xp.ones_like(values[loss_place])
                values.clear()
                middle = perf_counter_ns()  # the outputs were waited for
                self._gradients.clear()
                passed.backward(tape, {loss_place: seed}, self._take)
                for old, value in new:
                    self._replace(old, value)
                library.synchronize()
            self.forward_ns += middle - begin
            self.backward_ns += perf_counter_ns() - middle
            return outputs

        return train

    def _take(self, parameter: str, gradient: Any) -> None:
        """One parameter's gradient is complete."""
        if parameter in self._bound:
            self._bound[parameter][...] = 0 if gradient is None else gradient
        else:
            self._gradients[parameter] = gradient
        if self.on_gradient is not None:
            self.on_gradient(parameter)

    def _replace(self, name: str, value: Any) -> None:
        if name in self._in_place:
            self._values[name][...] = value
        else:
            self._values[name] = value

    def _load(self, name: str, value: Array) -> None:
        if name in self._bound or name in self._in_place:
            with self._library.computing():
                self._values[name][...] = self._library.put(value)
        else:
            self._values[name] = self._library.put(value)

    def _value(self, name: str) -> Array:
        return np.array(self._library.get(self._values[name]))

    def _gradient(self, parameter: str) -> Array:
        found = self._bound.get(parameter, self._gradients.get(parameter))
        if found is None:
            return np.zeros_like(self._library.get(self._values[parameter]))
        return np.array(self._library.get(found))

    def _seed_pass(self, seed: int) -> None:
        self._begun = self._begun[0] + 1, seed
