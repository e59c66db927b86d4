"""What executes a network: the interface that every framework's adapter fills."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Slot:
    """Where one parameter tensor lies in the flat buffer."""

    name: str
    offset: int  # in elements
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class Evaluation:
    """Mean loss and accuracy (0..1) over a whole split."""

    loss: float
    accuracy: float


class Executor(ABC):
    """One network under one framework on one device, made for gradients by the flat buffer.

    `parameters` and `gradients` are contiguous one-dimensional arrays of the framework (n,); the model's
    tensors are views into them, so that a collective is one call on one buffer. `forward_ns` and
    `backward_ns` are the nanoseconds spent in `inference_and_backprop` since the start.
    """

    parameters: Any
    gradients: Any
    slots: tuple[Slot, ...]
    forward_ns: int = 0
    backward_ns: int = 0

    @abstractmethod
    def inference(self, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Scores (batch, ...) of inputs (batch, ...), without gradients, in evaluation mode."""

    @abstractmethod
    def inference_and_backprop(self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        """The loss of the batch; its gradient stands in `gradients` afterwards, the old one is gone."""

    @abstractmethod
    def evaluate(self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Evaluation:
        """Mean loss and accuracy over all the samples, in evaluation mode."""

    @abstractmethod
    def numpy_parameters(self) -> np.ndarray[Any, Any]:
        """A copy of the flat parameters (n,) in host memory."""

    def named_parameters(self) -> dict[str, np.ndarray[Any, Any]]:
        """A copy of every parameter tensor under its name, in host memory."""
        flat = self.numpy_parameters()
        return {s.name: flat[s.offset : s.offset + s.size].reshape(s.shape).copy() for s in self.slots}
