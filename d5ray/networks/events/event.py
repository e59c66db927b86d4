"""Events of a network's execution: before and after the network, and before and after each operator"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from d5ray.checks import KnownKeywords
from d5ray.operators.nodes.node import Node

FORWARD, BACKWARD = "forward", "backward"
Values = tuple[Any, ...]  # arrays of the framework; None for what is left out, or has no gradient


@final
@dataclass(frozen=True)
class NetworkMoment:
    """The network is about to run, or has run.

    training        whether gradients are computed too
    elapsed_ns      how long it took, events included; None before
    memory_bytes    allocated now, by this process or on the device; None where nothing counts it
    values          the inputs before, the outputs after, by name, in host memory
    """

    training: bool
    elapsed_ns: int | None
    memory_bytes: int | None
    values: Mapping[str, np.ndarray[Any, Any]]


@final
@dataclass(frozen=True)
class OperatorMoment:
    """An operator is about to run, or has run.

    node, index     which one, and its place in the network's order
    direction       'forward' or 'backward'
    elapsed_ns      how long it took, without events; None before. On a GPU it has been waited for.
    memory_bytes    allocated now, by this process or on the device; None where nothing counts it
    inputs          forward the node's inputs, backward the gradients of its outputs: the framework's arrays
    outputs         forward its outputs, backward the gradients of its inputs; empty before
    """

    node: Node
    index: int
    direction: str
    elapsed_ns: int | None
    memory_bytes: int | None
    inputs: Values = field(repr=False)
    outputs: Values = field(default=(), repr=False)

    def output(self, place: int) -> np.ndarray[Any, Any] | None:
        """A copy in host memory of the output, or gradient, at this place; None where there is none."""
        value = self.outputs[place] if place < len(self.outputs) else None
        return None if value is None else in_host_memory(value)

    def named_outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Copies in host memory of what came out: tensors by their names, gradients by their tensors'."""
        names = self.node.outputs if self.direction == FORWARD else self.node.inputs
        found = {name: self.output(place) for place, name in enumerate(names) if name}
        return {name: value for name, value in found.items() if value is not None}


class GraphEvent(KnownKeywords):
    """Subclass it, override the hooks you need, and give it to an executor as one of its `events`.

    A hook that is not overridden costs nothing; without hooks on operators an executor runs code in which
    no operator is watched. What a hook raises ends the run and is raised there.
    """

    def before_network(self, moment: NetworkMoment) -> None:
        """The inputs are checked; nothing has run."""

    def after_network(self, moment: NetworkMoment) -> None:
        """Outputs, and gradients where they are computed, are there."""

    def before_operator(self, moment: OperatorMoment) -> None:
        """An operator is about to run, forward or backward."""

    def after_operator(self, moment: OperatorMoment) -> None:
        """Called when an operator has run."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def in_host_memory(value: Any) -> np.ndarray[Any, Any]:
    """A copy of an array of any framework as one of NumPy."""
    if hasattr(value, "detach"):  # PyTorch
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            import ml_dtypes  # noqa: PLC0415 - takes a while, and is rarely needed

            return np.array(value.float().numpy().astype(ml_dtypes.bfloat16))
        value = value.numpy()
    elif hasattr(value, "get"):  # CuPy
        value = value.get()
    return np.array(value)
