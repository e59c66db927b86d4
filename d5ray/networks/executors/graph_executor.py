"""GraphExecutor: what runs a Network under a framework, forwards and backwards, with events around it"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError, nearest
from d5ray.networks.device import Device
from d5ray.networks.events.event import GraphEvent
from d5ray.networks.events.observer import Observer, checked
from d5ray.networks.executors import inputs as given_inputs
from d5ray.networks.executors.array_library import ArrayLibrary
from d5ray.networks.executors.plan import Plan, computable, needs_of, plan
from d5ray.networks.microbatch.accumulator import Accumulator, HostAccumulator
from d5ray.networks.network import Network
from d5ray.operators.collectives import DOMAIN, Collectives
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.lookup import check_supported

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]
Structure = tuple[tuple[Node, ...], dict[str, TensorDescriptor], tuple[str, ...], dict[str, Array]]
Run = Callable[[Arrays], dict[str, Array]]  # from checked inputs to outputs, by name

MOST_SIGNATURES = 1024  # shapes of inputs that are remembered as right
PASS_APART = 0x9E3779B97F4A7C15  # between the seeds of one pass and of the next; odd, so that none returns
DRAWING = frozenset({"Dropout", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"})


class GraphExecutor(ABC):
    """One network under one framework on one device.

    Code is built once for every kind of pass, when it is first asked for, and again where the network's
    nodes have changed since. A value that is fed to the network is used from the next pass on; after a pass
    the network's `fetch_tensors` gives what this executor holds: parameters, state, and gradients by the
    names that `network.gradient(loss)` gives.

    events: `GraphEvent`s; where none of them has hooks on operators, the code that runs has none either.
    trained: the parameters that gradients are computed for, by default all; the others are frozen.
    seed: of what the network draws at random in training, such as a Dropout's mask: in the k-th pass it
    depends on seed and k alone.
    collectives: of the parts of a split network (`split`), each of which runs the same passes.

    Raises `ConfigurationError` where the framework has not all of the network's operators, naming them all.
    """

    forward_ns: int = 0  # spent in training passes since the start
    backward_ns: int = 0

    def __init__(
        self,
        network: Network,
        library: ArrayLibrary,
        device: Device,
        events: GraphEvent | Sequence[GraphEvent] = (),
        trained: Iterable[str] | None = None,
        seed: int = 0,
        collectives: Collectives | None = None,
    ) -> None:
        self.network, self.library, self.device = network, library, device
        self.framework = library.name
        self.collectives = collectives
        self.events = checked(events)
        observer = Observer(self.events, library.allocated, library.synchronize)
        self._observer = observer if self.events else None
        self._asked_for = None if trained is None else tuple(trained)
        self._draw_seed, self._training_passes = seed, 0
        self._signatures: dict[Any, Run] = {}
        self._runs: dict[tuple[str | None, tuple[str, ...]], Run] = {}
        self._held: dict[str, Array] = {}
        self._structure: Structure | None = None
        self._changes = -1
        self._loss: str | None = None
        self._adopt()
        network.attach(self)

    # -- what users call -------------------------------------------------------------------------------

    @final
    def inference(self, inputs: Arrays) -> dict[str, Array]:
        """The network's outputs by name, without gradients, evaluated: no Dropout, running statistics.

        Outputs that need inputs which are not given, such as a loss without its labels, are left out. Raises
        `ConfigurationError` before anything runs for inputs that are unknown or not of the right shape and
        type, and where what is given is enough for no output.
        """
        inputs = given_inputs.as_arrays(inputs)
        return self._run_of(None, inputs)(inputs)

    @final
    def inference_and_backprop(self, inputs: Arrays, loss: str = "loss") -> dict[str, Array]:
        """The outputs, the loss among them; gradients and the next state are there afterwards.

        The network's nodes do what they say of training: a BatchNormalization with `training_mode` takes the
        batch's statistics, and `state` has the next running ones. Raises `ConfigurationError` as `inference`
        does, and for a loss that is no tensor of the network or not a single floating-point number.
        """
        inputs = given_inputs.as_arrays(inputs)
        outputs = self._run_of(loss, inputs)(inputs)
        self._loss = loss
        return outputs

    @property
    def trained(self) -> tuple[str, ...]:
        """The parameters that gradients are computed for."""
        return self._trained

    @property
    def state(self) -> dict[str, Array]:
        """A copy of every tensor that training steps replace, as it is now."""
        self._refresh()
        return {name: self._value(name) for name in self.network.state_values}

    @final
    def fetch(self, name: str) -> Array | None:
        """A copy of a parameter, a state, or a gradient of the last training pass; None for what is neither.

        `network.fetch_tensors` asks this.
        """
        self._refresh()
        if name in self.network.parameters or name in self.network.state_values:
            return self._value(name)
        if self._loss is None:
            return None
        parameter = {made: each for each, made in self.network.gradient(self._loss)}.get(name)
        if parameter is None:
            return None
        if parameter not in self._trained:
            raise ConfigurationError(
                f"there is no gradient {name!r}: the parameter {parameter!r} is frozen, since it is not "
                "among those that this executor was made to train"
            )
        return self._gradient(parameter)

    def draw_from(self, seed: int) -> None:
        """Let what the network draws at random from now on follow from this."""
        self._draw_seed, self._training_passes = seed, 0

    def passes(self) -> int:
        """The number of training passes that have drawn something since the last `draw_from`."""
        return self._training_passes

    def go_on_from(self, passes: int) -> None:
        """Draw as after that many passes."""
        self._training_passes = passes

    def accumulator(self) -> Accumulator:
        """A new sum of the gradients of several training passes, as micro-batches need it."""
        return HostAccumulator(self._gradient)

    # -- what a framework fills ------------------------------------------------------------------------

    @abstractmethod
    def _build(self, made: Plan, loss: str | None, observer: Observer | None) -> Run:
        """The code of one kind of pass; with an observer the code that tells it of every operator."""

    @abstractmethod
    def _load(self, name: str, value: Array) -> None:
        """Take this value for a parameter, constant or state; it must not be changed."""

    @abstractmethod
    def _value(self, name: str) -> Array:
        """A copy of a parameter, constant or state."""

    @abstractmethod
    def _gradient(self, parameter: str) -> Array:
        """A copy of the gradient that the last training pass has left."""

    # -- how -------------------------------------------------------------------------------------------

    def _run_of(self, loss: str | None, inputs: Arrays) -> Run:
        """The code for these inputs, which are of the right shapes and types."""
        if self._changes != self.network.changes_so_far:
            self._refresh()
        if self.collectives is not None:
            shapes = {name: np.shape(value) for name, value in inputs.items()}
            self.collectives.sizes = given_inputs.open_sizes(self.network.inputs, shapes)
        try:
            signature = (loss, *[(name, value.shape, value.dtype) for name, value in inputs.items()])
            return self._signatures[signature]
        except (KeyError, AttributeError, TypeError):
            run = self._checked_run(loss, inputs)
        if len(self._signatures) >= MOST_SIGNATURES:
            self._signatures.clear()
        self._signatures[signature] = run
        return run

    def _checked_run(self, loss: str | None, inputs: Arrays) -> Run:
        network, known = self.network, self.network.inputs
        if not isinstance(inputs, Mapping):
            raise ConfigurationError(
                f"inputs is a {type(inputs).__name__}: give a dictionary of NumPy arrays by the names of the "
                f"network's inputs, {', '.join(map(repr, known))}"
            )
        given_inputs.check_names(known, inputs)
        wanted = computable(network, inputs)
        if loss is not None:
            check_loss(network, loss)
            given_inputs.check_complete(known, inputs, needs_of(network, [loss]), f"the loss {loss!r}")
            wanted = tuple(dict.fromkeys((*wanted, loss)))
        elif not wanted:
            first = next(iter(network.outputs), None)
            if first is None:
                raise ConfigurationError("the network has no outputs: give it one with add_output")
            given_inputs.check_complete(known, inputs, needs_of(network, [first]), f"the output {first!r}")
        given_inputs.check_values(network, inputs)
        if (loss, wanted) not in self._runs:
            self._runs[loss, wanted] = self._built(loss, wanted)
        return self._runs[loss, wanted]

    def _built(self, loss: str | None, wanted: tuple[str, ...]) -> Run:
        made = plan(self.network, wanted, training=loss is not None)
        if loss is not None and not self._reaches(made, loss):
            raise ConfigurationError(
                f"the loss {loss!r} depends on none of the parameters that are trained "
                f"({', '.join(map(repr, self._trained)) or 'there are none'}): there is nothing to "
                "differentiate"
            )
        observer = self._observer
        watches = observer is not None and observer.watches_operators
        run = self._build(made, loss, observer if watches else None)
        if loss is not None and self._draws(made):
            run = self._drawing(run)
        return run if observer is None else announced(run, observer, loss is not None)

    def _reaches(self, made: Plan, loss: str) -> bool:
        return any(name in self._trained for name, _ in self.network.gradient(loss))

    def _draws(self, made: Plan) -> bool:
        return any(draws(node) for _, node in made.nodes)

    def _drawing(self, run: Run) -> Run:
        def drawing(inputs: Arrays) -> dict[str, Array]:
            self._training_passes += 1
            self._seed_pass((self._draw_seed + self._training_passes * PASS_APART) % 2**63)
            return run(inputs)

        return drawing

    def _check(self, network: Network) -> None:  # noqa: B027 - most frameworks take all that they have
        """Raise `ConfigurationError` for nodes that the framework cannot compute where they stand."""

    def _seed_pass(self, seed: int) -> None:  # noqa: B027 - a native model draws as its framework does
        """Let the pass that begins draw from this seed."""

    def _forget(self) -> None:
        """Build all code anew when it is asked for."""
        self._signatures.clear()
        self._runs.clear()

    def _refresh(self) -> None:
        """Take over what has changed in the network since."""
        if self._changes != self.network.changes_so_far:
            self._adopt()

    def _adopt(self) -> None:
        network = self.network
        structure = (network.nodes, dict(network.inputs), tuple(network.outputs), dict(network.constants))
        if self._structure is None or not _same(structure, self._structure):
            check_supported(self.framework, network.nodes)
            self._check(network)
            self._structure = structure
            self._trained = _trained(network, self._asked_for)
            self._forget()
        self._changes = network.changes_so_far
        values = {**network.parameters, **network.constants, **network.state_values}
        for name, value in values.items():
            if self._held.get(name) is not value:
                self._load(name, value)
        self._held = values


def draws(node: Node) -> bool:
    """True if a node draws random numbers, or may do so, being of the user's own."""
    return node.type in DRAWING or node.domain not in ("", DOMAIN)


def check_loss(network: Network, loss: str) -> None:
    """Raise `ConfigurationError` unless this is a tensor of one floating-point number, so far as is known."""
    made = {name for node in network.nodes for name in node.outputs if name}
    if loss not in made:
        known = [*network.outputs, *(each for each in made if each not in network.outputs)]
        raise ConfigurationError(
            f"the network has no tensor {loss!r} to differentiate: {nearest(loss, known[:20])}"
        )
    descriptor = network.descriptors.get(loss)
    if descriptor is None:
        return
    if descriptor.dtype.kind != "f" and descriptor.dtype.name != "bfloat16":
        raise ConfigurationError(
            f"the loss {loss!r} is {descriptor}: it must be of a floating-point type to be differentiated"
        )
    if descriptor.shape is not None and any(size != 1 for size in descriptor.shape):
        raise ConfigurationError(
            f"the loss {loss!r} is {descriptor}, not a scalar: add a node that reduces it, such as ReduceMean"
        )


def check_one_number(loss: str, shape: Sequence[int]) -> None:
    """Raise `ConfigurationError` where the loss that was computed is not one number."""
    if any(size != 1 for size in shape):
        raise ConfigurationError(
            f"the loss {loss!r} has the shape {tuple(shape)}, and is not a scalar: add a node that reduces "
            "it, such as ReduceMean"
        )


def _trained(network: Network, asked_for: tuple[str, ...] | None) -> tuple[str, ...]:
    if asked_for is None:
        return tuple(network.parameters)
    for name in asked_for:
        if name not in network.parameters:
            raise ConfigurationError(
                f"trained has {name!r}, which is no parameter of the network: "
                f"{nearest(name, network.parameters)}"
            )
    return tuple(name for name in network.parameters if name in asked_for)


def _same(one: Structure, other: Structure) -> bool:
    """True if nothing but values of parameters and state has changed: the nodes are the same ones."""
    (nodes, inputs, outputs, constants), (nodes_, inputs_, outputs_, constants_) = one, other
    return (
        len(nodes) == len(nodes_)
        and all(a is b for a, b in zip(nodes, nodes_, strict=True))
        and inputs == inputs_
        and outputs == outputs_
        and constants.keys() == constants_.keys()
        and all(value is constants_[name] for name, value in constants.items())
    )


def announced(run: Run, observer: Observer, training: bool) -> Run:
    """The run with what happens before and after it."""
    if not observer.watches_network and not observer.watches_operators:
        return run

    def announced(inputs: Arrays) -> dict[str, Array]:
        observer.before_network(training, inputs)
        outputs = run(inputs)
        observer.after_network(training, outputs)
        return outputs

    return announced
