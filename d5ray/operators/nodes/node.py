"""Node: one application of an operator in a graph, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, final

# A number, a text, a tensor (a NumPy array), a graph (an onnx.GraphProto), or a tuple of numbers or texts.
Attribute = Any


@final
@dataclass(frozen=True)
class Node:
    """An operator type with its attributes, and the tensors that it reads and writes, as in ONNX.

    inputs and outputs are names of tensors; "" stands for an optional one that is left out. Attributes are
    numbers, texts, tuples of them, or NumPy arrays. domain "" is ONNX's own.
    """

    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: MappingProxyType({}))
    name: str = ""
    domain: str = ""

    def __str__(self) -> str:
        """The node's name in errors: 'conv1 (Conv)'."""
        kind = f"{self.domain}.{self.type}" if self.domain else self.type
        return f"{self.name} ({kind})" if self.name else kind
