"""NodeContext: a node with all that is known about it before anything runs; what is built of it"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node import Attribute, Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor


@final
@dataclass(frozen=True)
class NodeContext:
    """A node in its network, as an implementation gets it once, when an executor is built.

    constants: inputs by index whose value cannot change, such as the new shape of a Reshape that the graph
    holds. inputs and outputs: the tensors' descriptors, in the node's order, None where nothing is known.
    evaluating: the network is used, not trained: BatchNormalization takes its running statistics and Dropout
    lets everything pass, whatever their training_mode says. random: draws uniform numbers for what draws at
    random, `random.random(shape)`; a generator of the array module that computes. collectives: how the parts
    of a split network exchange tensors (`Collectives`), None where the network is whole.
    """

    node: Node
    constants: Mapping[int, np.ndarray[Any, Any]] = field(default_factory=lambda: MappingProxyType({}))
    inputs: tuple[TensorDescriptor | None, ...] = ()
    outputs: tuple[TensorDescriptor | None, ...] = ()
    evaluating: bool = False
    random: Any = None
    collectives: Any = None

    def attribute(self, name: str, default: Attribute = None) -> Attribute:
        """The node's attribute, or ONNX's default for it, which the caller knows."""
        return self.node.attributes.get(name, default)

    def required(self, name: str) -> Attribute:
        """The node's attribute. Raises `ConfigurationError` where it is missing."""
        if name not in self.node.attributes:
            raise ConfigurationError(f"the node {self.node} lacks the attribute {name!r}, which it must have")
        return self.node.attributes[name]

    def has_input(self, index: int) -> bool:
        """True if this optional input is given."""
        return index < len(self.node.inputs) and self.node.inputs[index] != ""

    def has_output(self, index: int) -> bool:
        """True if this optional output is read by anything."""
        return index < len(self.node.outputs) and self.node.outputs[index] != ""


# A kernel takes a framework's tensors, one for each input of the node, None for one that is left out, and
# gives a tensor where the node has one output, and a tuple of them otherwise. The framework's automatic
# differentiation goes through it. All that depends on attributes and constants alone is decided while it is
# built, so that a call costs what the framework's own function costs.
Kernel = Callable[..., Any]
KernelFactory = Callable[[NodeContext], Kernel]
