"""Network: an ONNX graph that one can look at and change, and that is valid after every change."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.errors import ConfigurationError, nearest
from d5ray.networks.graph import inference
from d5ray.networks.graph.graph import Array, Graph, check_names, in_order
from d5ray.networks.graph.inference import Inferred
from d5ray.networks.graph.kinds import check_state, state_of
from d5ray.networks.graph.schemas import check_supported
from d5ray.operators.node import Node
from d5ray.operators.site import Site
from d5ray.operators.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    import onnx


@final
class Network:
    """Nodes, and the tensors between them, in the meaning of ONNX's newest operator set; no framework in it.

    Tensors are known by their names. What comes from outside are `inputs`; `parameters`, which are trained;
    `constants`, which are not; and `state`, which a training step replaces by an output of a node, such as
    the running mean of a BatchNormalization. Everything else is made by a node.

    >>> network = Network("line")
    >>> x = network.add_input("x", TensorDescriptor("float32", ("batch", 3)))
    >>> w = network.add_parameter("w", np.ones((3, 2), np.float32))
    >>> y = network.add_node(Node("MatMul", (x, w), ("y",)))
    >>> network.add_output("y")
    >>> network.outputs
    mappingproxy({'y': float32 (batch, 2)})

    Every change is checked as a whole and undone if it does not fit; `changes` makes several ones of which
    only the end need be valid. What the attributes give is not to be changed, and stays what it is when the
    network changes.
    """

    def __init__(self, name: str = "network") -> None:
        self._state = Inferred(Graph(name))
        self._pending: Graph | None = None

    @classmethod
    def from_onnx(cls, source: "str | PathLike[str] | bytes | onnx.ModelProto") -> "Network":
        """The network of an ONNX file, of its bytes, or of a model that is in memory.

        Older operator sets are converted to the newest, functions of the model's own are inlined, Constant
        nodes become constants. Nothing is executed, and no file is read but this one and the data files that
        it names within its folder. Raises `ConfigurationError` for a file that cannot be read or holds what
        d5ray cannot compute: all of that at once.
        """
        from d5ray.networks.graph.reader import read  # noqa: PLC0415 - takes a while, and is not always needed

        network = cls()
        network._become(read(source))
        return network

    def to_onnx(self, path: str | PathLike[str] | None = None) -> "onnx.ModelProto":
        """The network as ONNX's message, which is also written to `path`."""
        from d5ray.networks.graph.writer import write  # noqa: PLC0415

        return write(self._settled(), self.descriptors, path)

    # What there is

    @property
    def name(self) -> str:
        return self._graph.name

    @property
    def nodes(self) -> tuple[Node, ...]:
        """In an order in which each follows those it reads from."""
        return self._graph.nodes

    @property
    def inputs(self) -> Mapping[str, TensorDescriptor]:
        return MappingProxyType(dict(self._graph.inputs))

    @property
    def outputs(self) -> Mapping[str, TensorDescriptor]:
        known = self.descriptors
        return MappingProxyType({name: known[name] for name in self._graph.outputs if name in known})

    @property
    def parameters(self) -> Mapping[str, Array]:
        """What is trained, by name."""
        return MappingProxyType(dict(self._graph.parameters))

    @property
    def constants(self) -> Mapping[str, Array]:
        """What is not trained and never changes, by name."""
        return MappingProxyType(dict(self._graph.constants))

    @property
    def state(self) -> Mapping[str, str]:
        """Of every tensor that a training step replaces, the output of a node that takes its place."""
        return MappingProxyType(state_of(self._graph))

    @property
    def state_values(self) -> Mapping[str, Array]:
        """The values of the tensors in `state`, before any step."""
        return MappingProxyType(dict(self._graph.state_values))

    @property
    def descriptors(self) -> Mapping[str, TensorDescriptor]:
        """Type and shape of every tensor of which they are known, by its name."""
        self._settled()
        return self._state.descriptors

    def node(self, name: str) -> Node:
        """The node of this name. Raises `ConfigurationError` where there is none."""
        for node in self._graph.nodes:
            if node.name == name:
                return node
        raise ConfigurationError(
            f"the network {self.name!r} has no node {name!r}: {nearest(name, [n.name for n in self.nodes])}"
        )

    def producer(self, tensor: str) -> Node | None:
        """The node that makes a tensor, None where it comes from outside."""
        self._check_tensor(tensor)
        return self._graph.producers().get(tensor)

    def readers(self, tensor: str) -> tuple[Node, ...]:
        """The nodes that read a tensor."""
        self._check_tensor(tensor)
        return tuple(self._graph.readers().get(tensor, ()))

    def site(self, node: Node | str, evaluating: bool = False, random: Any = None) -> Site:
        """Where a node stands, as an executor hands it to an implementation."""
        at = inference.site(self._own(node), self._graph.constants, self.descriptors)
        return dataclasses.replace(at, evaluating=evaluating, random=random)

    def fetch_tensors(self, names: Iterable[str]) -> list[Array]:
        """The values of parameters, constants and state, which the network holds. Not copied."""
        held = self._graph.values()
        found = []
        for name in names:
            if name not in held:
                self._check_tensor(name)
                raise ConfigurationError(
                    f"the network holds no value for {name!r}, which is computed: ask an executor's inference"
                )
            found.append(held[name])
        return found

    def gradient(self, loss: str = "loss") -> list[tuple[str, str]]:
        """The parameters that a loss depends on, each with the name of its gradient, in their order."""
        self._check_tensor(loss)
        producers = self._graph.producers()
        reached: set[str] = set()
        waiting = [loss]
        while waiting:
            name = waiting.pop()
            if name and name not in reached:
                reached.add(name)
                if name in producers:
                    waiting.extend(producers[name].inputs)
        taken = set(self._graph.tensors())
        return [(name, _free(f"{name}_grad", taken)) for name in self._graph.parameters if name in reached]

    # Changing it

    @contextmanager
    def changes(self) -> Iterator["Network"]:
        """Several changes as one: checked at the end, all undone where that fails or anything is raised."""
        if self._pending is not None:
            yield self
            return
        self._pending = self._state.graph
        try:
            yield self
            pending = self._pending
        finally:
            self._pending = None
        self._become(pending)

    def add_input(self, name: str, descriptor: TensorDescriptor) -> str:
        """What the network is given from outside in every call. The name is given back."""
        self._change(inputs={**self._graph.inputs, name: descriptor}, new=name)
        return name

    def add_parameter(self, name: str, value: Any) -> str:
        """A tensor that is trained; it must be of a floating-point type. The name is given back."""
        array = np.asarray(value)
        if array.dtype.kind in "iub":
            raise ConfigurationError(
                f"the parameter {name!r} is of type {array.dtype}: what is trained is of a floating-point "
                "type; make it a constant"
            )
        self._change(parameters={**self._graph.parameters, name: array}, new=name)
        return name

    def add_constant(self, name: str, value: Any) -> str:
        """A tensor that never changes. The name is given back."""
        self._change(constants={**self._graph.constants, name: np.asarray(value)}, new=name)
        return name

    def add_state(self, name: str, value: Any) -> str:
        """A tensor that a training step replaces, as a BatchNormalization its running mean."""
        self._change(state_values={**self._graph.state_values, name: np.asarray(value)}, new=name)
        return name

    def add_output(self, name: str) -> None:
        """Let a tensor be one that the network gives."""
        self._change(outputs=(*self._graph.outputs, name))

    def add_node(self, node: Node) -> Node:
        """Let the network compute something more; the node is given back, with a name if it had none.

        The tensors that it reads must be there, those that it makes must not.
        """
        named = self._named(node)
        self._change(nodes=(*self._graph.nodes, named))
        return named

    def copy(self) -> "Network":
        """A network of its own with the same nodes; the values are shared until one is replaced."""
        other = type(self)()
        other._state = Inferred(self._settled(), self._state.descriptors)
        return other

    # How

    @property
    def _graph(self) -> Graph:
        return self._state.graph if self._pending is None else self._pending

    def _settled(self) -> Graph:
        """The graph, in which nothing is open."""
        if self._pending is not None:
            self._state = _checked(self._pending, self._state)
            self._pending = self._state.graph
        return self._state.graph

    def _change(self, new: str | None = None, **parts: Any) -> None:
        if new is not None and new in set(self._graph.tensors()):
            raise ConfigurationError(f"there is a tensor {new!r} already: give the new one another name")
        changed = dataclasses.replace(self._graph, **parts)
        if self._pending is not None:
            self._pending = changed
        else:
            self._become(changed)

    def _become(self, graph: Graph) -> None:
        self._state = _checked(graph, self._state)

    def _named(self, node: Node) -> Node:
        names = {each.name for each in self._graph.nodes}
        name = node.name or _free(node.type, names)
        return dataclasses.replace(
            node,
            inputs=tuple(node.inputs),
            outputs=tuple(node.outputs),
            attributes=MappingProxyType(
                {
                    key: tuple(each) if isinstance(each, list) else each
                    for key, each in node.attributes.items()
                }
            ),
            name=name,
        )

    def _own(self, node: Node | str) -> Node:
        """The network's own node that is meant."""
        found = self.node(node if isinstance(node, str) else node.name)
        if isinstance(node, Node) and found is not node and str(found) != str(node):
            raise ConfigurationError(f"the node {node} is not one of the network {self.name!r}")
        return found

    def _check_tensor(self, name: str) -> None:
        names = set(self._graph.tensors())
        if name not in names:
            raise ConfigurationError(
                f"the network {self.name!r} has no tensor {name!r}: {nearest(name, names)}"
            )


def _checked(graph: Graph, before: Inferred) -> Inferred:
    """The graph in order, with descriptors. Raises `ConfigurationError` where it is not valid."""
    check_supported(graph.nodes)
    check_names(graph)
    graph = dataclasses.replace(graph, nodes=in_order(graph))
    check_state(graph)
    return inference.infer(graph, before)


def _free(name: str, taken: Sequence[str] | set[str]) -> str:
    """The name, or with a number behind it where it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
