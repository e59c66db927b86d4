"""Network: an ONNX graph that you can inspect and change, and that is valid after every change."""

import dataclasses
import gc
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.checks import check_kind, check_text
from d5ray.errors import ConfigurationError, nearest
from d5ray.failures.program_state import as_before
from d5ray.networks.executors.framework_of_model import framework_of
from d5ray.networks.graph import edits
from d5ray.networks.graph import subgraph as parts
from d5ray.networks.graph.double import in_double
from d5ray.networks.graph.graph import Array, Graph
from d5ray.networks.graph.inference import Inferred
from d5ray.networks.graph.losses import with_loss
from d5ray.networks.graph.network_view import NetworkView, checked
from d5ray.networks.graph.tensors import is_floating, read_only
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    import onnx


@final
class Network(NetworkView):
    """Nodes and tensors with the semantics of ONNX's newest operator set, independent of any framework.

    Tensors are identified by their names. `inputs` are given in every call; `parameters` are trained,
    `constants` are not; `state` is replaced by an output of a node in a training step, such as the running
    mean of a BatchNormalization. All other tensors are outputs of nodes.

    >>> network = Network("line")
    >>> x = network.add_input("x", TensorDescriptor("float32", ("batch", 3)))
    >>> w = network.add_parameter("w", np.ones((3, 2), np.float32))
    >>> y = network.add_node(Node("MatMul", (x, w), ("y",)))
    >>> network.add_output("y")
    >>> network.outputs
    mappingproxy({'y': float32 (batch, 2)})

    Every change is checked and undone if it is invalid; `changes` combines several of which only the result
    must be valid. Do not change the values of the attributes; they stay the same when the network changes.
    """

    def __init__(self, name: str = "network") -> None:
        check_kind("name", name, str, "a text")
        check_text("name", name)
        super().__init__(Graph(name))

    @classmethod
    def from_onnx(cls, source: "str | PathLike[str] | bytes | onnx.ModelProto") -> "Network":
        """The network of an ONNX file, of its bytes, or of a model in memory.

        Older operator sets are converted to the newest, functions of the model's own are inlined, Constant
        nodes become constants. Nothing is executed, and no file is read but this one and the data files that
        it names within its folder. Raises `ConfigurationError` for a file that cannot be read or holds what
        d5ray cannot compute: all of that at once.
        """
        from d5ray.networks.graph.reader import check_declared, read  # noqa: PLC0415 - not always needed

        network = cls()
        try:
            with _without_collection():
                graph, declared = read(source)
                network._become(graph, graph)
        except MemoryError as error:
            raise ConfigurationError(
                "the model needs more memory than there is: use a machine with more"
            ) from error
        check_declared(declared, network.descriptors)
        return network

    @classmethod
    @as_before()
    def from_model(cls, model: Any, *samples: Any, **options: Any) -> "Network":
        """The network of a PyTorch module, with sample inputs for the shapes, or of a Keras model.

        It is `network_of` in `d5ray.frameworks.torch` or `.tensorflow`, which see, for what the model is.
        """
        made: Network = framework_of(model).network_of(model, *samples, **options)
        return made

    def to_onnx(self, path: str | PathLike[str] | None = None) -> "onnx.ModelProto":
        """The network as ONNX's message, which is also written to `path`."""
        from d5ray.networks.graph.writer import write  # noqa: PLC0415

        return write(self._settled(), self.descriptors, path)

    def __repr__(self) -> str:
        return f"Network({self.name!r}, {len(self.nodes)} nodes)"

    # Changing it

    @contextmanager
    def changes(self) -> Iterator["Network"]:
        """A context that combines several changes: checked at its end, all undone if anything fails."""
        if self._pending is not None:
            yield self
            return
        before, self._pending = self._state, self._state.graph
        try:
            yield self
            self._become(self._pending, before.graph)
        except BaseException:
            self._state = before
            raise
        finally:
            self._pending = None

    def add_input(self, name: str, descriptor: TensorDescriptor) -> str:
        """Add an input tensor, given in every call; returns its name."""
        self._change(name, inputs={**self._graph.inputs, name: descriptor})
        return name

    def add_output(self, name: str) -> None:
        """Make a tensor an output of the network."""
        self._change(outputs=(*self._graph.outputs, name))

    def add_parameter(self, name: str, value: Any) -> str:
        """Add a trained tensor of a floating-point type; copied. Returns its name."""
        self._change(name, parameters={**self._graph.parameters, name: _trainable(name, value)})
        return name

    def add_constant(self, name: str, value: Any) -> str:
        """Add a tensor that never changes; copied. Returns its name."""
        self._change(name, constants={**self._graph.constants, name: _kept(value)})
        return name

    def add_state(self, name: str, value: Any) -> str:
        """Add a tensor that a training step replaces, such as a running mean; copied. Returns its name."""
        self._change(name, state_values={**self._graph.state_values, name: _kept(value)})
        return name

    def add_node(self, node: Node) -> Node:
        """Add a node; returns it, with a name if it had none.

        Its input tensors must exist, its output tensors must not.
        """
        taken = {each.name for each in self._graph.nodes}
        named = edits.normalized(node, node.name or edits.free(node.type, taken))
        self._change(nodes=(*self._graph.nodes, named))
        return named

    def add_edge(self, tensor: str, node: Node | str, slot: int) -> None:
        """Make a tensor input number `slot` of a node, replacing a previous one."""
        self._turn(edits.connected(self._graph, tensor, self._own(node), slot))

    def add_loss(
        self,
        kind: Any = "SoftmaxCrossEntropyLoss",
        scores: str | None = None,
        labels: str = "labels",
        loss: str = "loss",
        classes_axis: int = 1,
    ) -> str:
        """Add a new input for labels and an output `loss` that compares scores with them; returns its name.

        kind: SoftmaxCrossEntropyLoss or NegativeLogLikelihoodLoss, whose labels are classes' numbers, int64,
        in the scores' shape without the axis of the classes; or MeanSquaredError, whose labels are like the
        scores; also a `Loss`. scores: by default the network's only output. The loss is the mean over all
        labels.
        """
        if scores is None:
            if len(self._graph.outputs) != 1:
                raise ConfigurationError(
                    f"the network {self.name!r} has {len(self._graph.outputs)} outputs, "
                    f"{', '.join(map(repr, self._graph.outputs)) or 'none'}: say which one the scores are"
                )
            scores = self._graph.outputs[0]
        self._check_tensor(scores)
        known, name = self.descriptors.get(scores), kind if isinstance(kind, str) else kind.name
        self._turn(with_loss(self._graph, name, scores, known, labels, loss, classes_axis))
        return loss

    def remove_input(self, name: str) -> None:
        """Remove an input that no node reads."""
        self._check_among("input", name, self._graph.inputs)
        self._change(inputs={each: kind for each, kind in self._graph.inputs.items() if each != name})

    def remove_output(self, name: str) -> None:
        """Remove an output; the tensor stays."""
        self._check_among("output", name, self._graph.outputs)
        self._change(outputs=tuple(each for each in self._graph.outputs if each != name))

    def remove_node(self, node: Node | str) -> None:
        """Remove a node whose outputs are unused; `bypass` and `replace` remove other nodes.

        Parameters, constants and state that only it read are removed too, as with every last reader.
        """
        own = self._own(node)
        if self._pending is None:
            edits.check_unused(self._graph, own)
        self._turn(edits.without(self._graph, own))

    def remove_edge(self, tensor: str, node: Node | str, slot: int | None = None) -> None:
        """Remove a tensor from a node's inputs; it must be optional, or one of a variable number.

        slot: the number of the input, if the node reads the tensor more than once.
        """
        self._turn(edits.disconnected(self._graph, tensor, self._own(node), slot))

    def replace(self, node: Node | str, *by: Node) -> tuple[Node, ...]:
        """Replace a node by one or several; returns them, with names if they had none.

        Together they must have its outputs that are read; an operator of your own is a node of the domain and
        type under which it is registered.
        """
        own = self._own(node)
        if not by:
            raise ConfigurationError(
                f"there is nothing in the place of the node {own}: use bypass, or remove_node"
            )
        changed = edits.replaced(self._graph, own, by)
        place = self._graph.nodes.index(own)
        self._turn(changed)
        return changed.nodes[place : place + len(by)]

    def bypass(self, node: Node | str) -> None:
        """Remove a node; readers of its first output read its first input instead."""
        self._turn(edits.bypassed(self._graph, self._own(node)))

    def rename(self, old: str, new: str) -> None:
        """Rename a tensor wherever it is used."""
        self._check_tensor(old)
        self._check_new(new)
        self._turn(edits.renamed(self._graph, old, new))

    def rename_node(self, node: Node | str, new: str) -> None:
        """Rename a node."""
        self._turn(edits.renamed_node(self._graph, self._own(node), new))

    def feed_tensor(self, name: str, value: Any) -> None:
        """Set the value of a parameter, a constant, or a state, of its type; copied.

        An executor of the network uses it from its next pass on.
        """
        graph = self._graph
        for kind in ("parameters", "constants", "state_values"):
            held = getattr(graph, kind)
            if name in held:
                new = _kept(value)
                if new.dtype != held[name].dtype:
                    raise ConfigurationError(
                        f"{name!r} of the network {self.name!r} is {TensorDescriptor(new.dtype, new.shape)}, "
                        f"and must be of type {held[name].dtype}: convert it before"
                    )
                fed: dict[str, Any] = {kind: {**held, name: new}}
                self._turn(dataclasses.replace(graph, **fed))
                return
        self._check_tensor(name)
        where = "an input: give its value to inference" if name in graph.inputs else "computed by a node"
        raise ConfigurationError(f"{name!r} cannot be fed: it is {where}")

    def copy(self) -> "Network":
        """An independent network with the same nodes; values are shared until one is replaced."""
        other = type(self)()
        other._state = Inferred(self._settled(), self._state.descriptors)
        return other

    def in_float64(self) -> "Network":
        """A copy whose inputs, values and nodes are float64 where they are float32 here.

        Raises `ConfigurationError` for a node that holds a graph of its own, or that knows no float64.
        """
        other = self.copy()
        other._turn(in_double(other._graph))
        return other

    def with_values(self, values: Mapping[str, Any]) -> "Network":
        """A copy with these values of parameters and state, in its own types; others stay.

        Raises `ConfigurationError` for an unknown name, and for another shape.
        """
        other = self.copy()
        known = {**self.parameters, **self.state_values}
        with other.changes():
            for name, value in values.items():
                if name not in known:
                    raise ConfigurationError(
                        f"the network {self.name!r} has no parameter {name!r}: {nearest(name, known)}"
                    )
                if known[name].shape != np.shape(value):
                    raise ConfigurationError(
                        f"{name!r} of the network {self.name!r} has the shape {known[name].shape}, found "
                        f"{np.shape(value)}: give the tensors of the same network"
                    )
                other.feed_tensor(name, np.asarray(value, known[name].dtype))
        return other

    def part(self, nodes: Iterable[Node | str], outputs: Iterable[str], name: str = "") -> "Network":
        """An independent network of these nodes, in the given order, with these outputs.

        Outputs of other nodes that they read become inputs; it has its own parameters, constants and state
        that they read, whose values are shared until one is replaced.
        """
        graph = self._settled()
        own = [self._own(node) for node in nodes]
        known = self._state.descriptors
        other = type(self)()
        made = parts.part(graph, known, own, tuple(outputs), name or graph.name)
        other._state = Inferred(made, {each: known[each] for each in made.tensors() if each in known})
        return other

    @property
    def fingerprint(self) -> str:
        """SHA-256 over nodes and values: equal networks have equal ones, in every process."""
        return hashlib.sha256(self.to_onnx().SerializeToString(deterministic=True)).hexdigest()

    def __reduce__(self) -> "tuple[Callable[[bytes], Network], tuple[bytes]]":
        """Agents get it as an ONNX message, without what is attached to it."""
        return Network.from_onnx, (self.to_onnx().SerializeToString(),)

    # How

    def _change(self, new: str | None = None, **parts: Any) -> None:
        if new is not None:
            self._check_new(new)
        self._turn(dataclasses.replace(self._graph, **parts))

    def _turn(self, graph: Graph) -> None:
        """Be this graph, now or when all of several changes are made."""
        if self._pending is None:
            self._become(graph, self._state.graph)
        else:
            self._pending = graph

    def _become(self, graph: Graph, before: Graph) -> None:
        self._state = checked(edits.pruned(graph, before), self._state)
        self.changes_so_far += 1

    def _check_new(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"{name!r} is no name of a tensor: give a text that is not empty")
        if name in set(self._graph.tensors()):
            raise ConfigurationError(f"there is a tensor {name!r} already: give the new one another name")


def _kept(value: Any) -> Array:
    """A copy that nobody changes."""
    return read_only(np.array(value))


def _trainable(name: str, value: Any) -> Array:
    array = _kept(value)
    if not is_floating(array.dtype):
        raise ConfigurationError(
            f"the parameter {name!r} is of type {array.dtype}: what is trained is of a floating-point type; "
            "make it a constant"
        )
    return array


@contextmanager
def _without_collection() -> Iterator[None]:
    """Do not look for garbage meanwhile: among a million new objects that all stay it takes half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
