"""KernelFactory: what makes a framework's function for a node, once"""

from collections.abc import Callable
from typing import Any

from d5ray.operators.nodes.node_context import NodeContext

# What is built takes the framework's tensors, one for each input of the node, None for one that is left out,
# and gives a tensor where the node has one output, and a tuple of them otherwise. The framework's automatic
# differentiation goes through it. All that depends on attributes and constants alone is decided while it is
# built, so that a call costs what the framework's own function costs.
Kernel = Callable[..., Any]
KernelFactory = Callable[[NodeContext], Kernel]
