"""Counted: a node context whose tensors are all known, so that what it takes can be counted"""

import math
from dataclasses import dataclass
from typing import final

from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor


@final
@dataclass(frozen=True)
class Counted:
    """A node context whose tensors are known: a descriptor for each name, None for one left out."""

    context: NodeContext
    inputs: tuple[TensorDescriptor | None, ...]
    outputs: tuple[TensorDescriptor | None, ...]

    def input(self, index: int) -> tuple[int, ...]:
        """The sizes of an input, () where it is left out."""
        return _sizes(self.inputs, index)

    def output(self, index: int = 0) -> tuple[int, ...]:
        """The sizes of an output, () where nobody asks for it."""
        return _sizes(self.outputs, index)

    def has(self, index: int) -> bool:
        """True if this input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    @property
    def written(self) -> int:
        """The elements of the first output."""
        return math.prod(self.output())

    @property
    def read(self) -> int:
        """The elements of the first input."""
        return math.prod(self.input(0))


def _sizes(descriptors: tuple[TensorDescriptor | None, ...], index: int) -> tuple[int, ...]:
    found = descriptors[index] if index < len(descriptors) else None
    return () if found is None else found.sizes
