"""The executor of a Network under TensorFlow: one tf.function for each kind of pass, traced once"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.frameworks.tensorflow.library import TensorFlow
from d5ray.frameworks.tensorflow.nodes import Call, calls, read_as_filters, specification
from d5ray.networks.device import CPUDevice, Device
from d5ray.networks.events.event import GraphEvent
from d5ray.networks.events.observer import Observer
from d5ray.networks.executors.fusion import fused
from d5ray.networks.executors.graph_executor import Array, Arrays, GraphExecutor, Run, check_one_number
from d5ray.networks.executors.plan import Plan
from d5ray.networks.network import Network
from d5ray.operators.collectives import Collectives
from d5ray.ops.tensorflow.held import HOLDERS, as_held, holder
from d5ray.ops.tensorflow.layout import weights_of
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import KNOWN_BEFORE, must_be_known

Tensor = Any  # of TensorFlow
Traced = Callable[..., Sequence[Tensor]]


@final
class TensorFlowGraphExecutor(GraphExecutor):
    """Parameters and state are `tf.Variable`s, constants stand in the graph; open sizes stay open.

    The weights of convolutions and linear layers are held as TensorFlow's kernels want them, (*kernel, in,
    out).

    Where operators are watched, the same Python code runs eagerly instead.

    Bound to arrays (see `bind`), a pass takes parameters and state from these, as inputs of the graph, and a
    training pass copies gradients and the next state out, tensor by tensor.
    """

    def __init__(
        self,
        network: Network,
        device: Device = CPUDevice(),  # noqa: B008 - frozen data
        events: GraphEvent | Sequence[GraphEvent] = (),
        *,
        trained: Iterable[str] | None = None,
        seed: int = 0,
        collectives: Collectives | None = None,
        products: str | None = None,
    ) -> None:
        library = TensorFlow(device)
        self._products = products
        self._where = library.where
        with tf.device(self._where):
            self._random = tf.random.Generator.from_seed(seed)
        self._variables: dict[str, Any] = {}
        self._filters: set[str] = set()  # the variables that are held so
        self._reads: tuple[int, frozenset[str]] = (-1, frozenset())  # at that many changes of the network
        self._gradients: dict[str, Tensor] = {}
        self._bound: Mapping[str, Array] = {}  # parameters, and then state
        self._bound_gradients: Mapping[str, Array] = {}
        self.on_gradient: Callable[[str], None] | None = None  # told of each, when all of them are there
        super().__init__(network, library, device, events, trained, seed, collectives)

    def bind(
        self, parameters: Mapping[str, Array], gradients: Mapping[str, Array], state: Mapping[str, Array]
    ) -> None:
        """In every pass take trained parameters and state from these arrays, and write what is new there."""
        if {*parameters, *state} != self._bound.keys():
            self._forget()
        self._bound, self._bound_gradients = {**parameters, **state}, gradients

    def _build(self, made: Plan, loss: str | None, observer: Observer | None) -> Run:
        made = fused(self.network, made) if observer is None else made
        own = calls(
            self.network,
            made,
            evaluating=loss is None,
            random=lambda _: self._random,
            collectives=self.collectives,
            observer=observer,
            trained=self._trained,
            products=None if loss is None else self._products,
        )
        names: tuple[str, ...] = ()
        held = tuple(name for name in self._bound if name in made.read)
        if loss is None:
            traced = self._inference_of(made, own, held)
        else:
            reached = {name for name, _ in self.network.gradient(loss)}
            names = tuple(name for name in self._trained if name in reached)
            traced = self._training_of(made, own, loss, names, held)
        if observer is None:
            known = {**self.network.descriptors, **self.network.inputs}
            signature = [specification(known[name]) for name in (*made.inputs, *held)]
            traced = tf.function(traced, input_signature=signature, autograph=False)
            with tf.device(self._where):
                traced = traced.get_concrete_function()
        wanted, given, count = made.wanted, made.inputs, len(made.wanted)
        types = [holder(self.network.inputs[name].dtype) for name in given]

        def run(inputs: Arrays) -> Sequence[Tensor]:
            with tf.device(self._where):
                tensors = [
                    tf.convert_to_tensor(as_held(inputs[name]), dtype=dtype)
                    for name, dtype in zip(given, types, strict=True)
                ]
                return traced(*tensors, *[tf.convert_to_tensor(self._bound[name]) for name in held])

        def infer(inputs: Arrays) -> dict[str, Array]:
            return {name: self._array(name, value) for name, value in zip(wanted, run(inputs), strict=True)}

        if loss is None:
            return infer

        def train(inputs: Arrays) -> dict[str, Array]:
            begin = perf_counter_ns()
            found = run(inputs)
            outputs = {name: self._array(name, value) for name, value in zip(wanted, found, strict=False)}
            check_one_number(loss, outputs[loss].shape)
            self._gradients = dict(zip(names, found[count:], strict=False))
            self._give_bound(dict(zip(made.state, found[count + len(names) :], strict=False)))
            # One graph has both passes: their share is not measured, and the usual one is assumed.
            spent = perf_counter_ns() - begin
            self.forward_ns += spent // 3
            self.backward_ns += spent - spent // 3
            return outputs

        return train

    def _inference_of(self, made: Plan, own: Sequence[Call], held: tuple[str, ...]) -> Traced:
        def infer(*inputs: Tensor) -> list[Tensor]:
            values = self._run(made, own, held, inputs)
            return [tf.identity(values[name]) for name in made.wanted]

        return infer

    def _training_of(
        self, made: Plan, own: Sequence[Call], loss: str, names: tuple[str, ...], held: tuple[str, ...]
    ) -> Traced:
        """Gives what is wanted, the gradients, and the next state where that is bound to arrays."""

        def train(*inputs: Tensor) -> list[Tensor]:
            bound = dict(zip(held, inputs[len(made.inputs) :], strict=True))
            moving = [bound.get(name, self._variables[name]) for name in names]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(moving)
                values = self._run(made, own, held, inputs)
            gradients = tape.gradient(
                values[loss], moving, unconnected_gradients=tf.UnconnectedGradients.ZERO
            )
            for old, new in made.state.items():
                if old not in bound:
                    self._variables[old].assign(values[new])
            outputs = [tf.identity(values[name]) for name in made.wanted]
            outputs += [tf.convert_to_tensor(gradient) for gradient in gradients]
            return outputs + [tf.identity(values[new]) for old, new in made.state.items() if old in bound]

        return train

    def _run(
        self, made: Plan, own: Sequence[Call], held: tuple[str, ...], inputs: Sequence[Tensor]
    ) -> dict[str, Tensor]:
        """All tensors by name; what nothing needs any more is let go, which matters where this is eager."""
        values: dict[str, Tensor] = dict(zip((*made.inputs, *held), inputs, strict=True))
        constants, read = self.network.constants, made.read
        values.update({name: tf.constant(as_held(constants[name])) for name in constants if name in read})
        variables = {name: v for name, v in self._variables.items() if name in read and name not in values}
        for name, variable in variables.items():
            tensor = tf.convert_to_tensor(variable)
            values[name] = weights_of(tensor) if name in self._filters else tensor
        for call, last in zip(own, made.last_uses, strict=True):
            call(values)
            for name in last:
                values.pop(name, None)
        return values

    def _array(self, name: str, value: Tensor) -> Array:
        """A tensor's value, of the type that it has in the network."""
        known = self.network.descriptors.get(name)
        found: Array = value.numpy()
        return found.astype(known.dtype) if known is not None and known.dtype.name in HOLDERS else found

    def _give_bound(self, state: Mapping[str, Tensor]) -> None:
        for name, array in self._bound_gradients.items():
            gradient = self._gradients.get(name)
            array[...] = 0 if gradient is None else gradient.numpy()
            if self.on_gradient is not None:
                self.on_gradient(name)
        for name, value in state.items():
            self._bound[name][...] = value.numpy()

    def _load(self, name: str, value: Array) -> None:
        if name in self.network.constants:
            return  # it stands in the graph
        if name in self._bound:
            self._bound[name][...] = value
        if name not in self._variables and value.ndim > 1 and name in self._read_as_filters():
            self._filters.add(name)
        value = self._as_filters(name, value)
        variable = self._variables.get(name)
        if variable is not None and variable.shape == value.shape and variable.dtype == value.dtype:
            variable.assign(value)
            return
        with tf.device(self._where):
            self._variables[name] = tf.Variable(value, trainable=False)

    def _value(self, name: str) -> Array:
        if name in self._bound:
            return np.array(self._bound[name])
        return self._as_weights(name, self._variables[name].numpy())

    def _gradient(self, parameter: str) -> Array:
        found = self._gradients.get(parameter)
        if found is None:
            return np.zeros_like(self._value(parameter))
        if parameter in self._bound:
            return np.array(found.numpy())
        return self._as_weights(parameter, found.numpy())

    def _read_as_filters(self) -> frozenset[str]:
        """Looked for once in a network, and again where it has changed."""
        changes, found = self._reads
        if changes != self.network.changes_so_far:
            found = read_as_filters(self.network)
            self._reads = self.network.changes_so_far, found
        return found

    def _as_filters(self, name: str, value: Array) -> Array:
        """The value with the axes of the variable of this name."""
        turned = name in self._filters and value.ndim > 1
        return value.transpose(*range(2, value.ndim), 1, 0) if turned else value

    def _as_weights(self, name: str, value: Array) -> Array:
        """The value with the network's axes of this tensor; a copy."""
        count = value.ndim
        turned = name in self._filters and count > 1
        return np.array(value.transpose(count - 1, count - 2, *range(count - 2)) if turned else value)

    def _check(self, network: Network) -> None:
        for node in network.nodes:
            for index in () if node.domain else KNOWN_BEFORE.get(node.type, ()):
                if index < len(node.inputs) and node.inputs[index] in network.inputs:
                    raise must_be_known(node, index)
            parts = network.descriptors.get(node.inputs[0]) if node.type == "Split" else None
            if parts is not None and parts.shape is None and len(node.inputs) < 2:
                raise ConfigurationError(
                    f"the node {node} splits {node.inputs[0]!r}, of which not even the number of axes is "
                    "known: TensorFlow's graph must know it; make what its shape comes from a constant"
                )

    def _seed_pass(self, seed: int) -> None:
        self._random.reset_from_seed(seed)
