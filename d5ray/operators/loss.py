"""What a loss is: the operator at the end of a network that turns scores and labels into one number."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    import torch


class Loss(ABC):
    """A mean over the batch, under every framework; `name` is the ONNX operator type.

    Sizes: scores (batch, ..., classes), labels (batch, ...). Implementations stand in the catalogue,
    `d5ray.ops`.
    """

    name: ClassVar[str]

    @abstractmethod
    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        """Raise `ConfigurationError` if a network's output (batch, ...) does not fit labels 0..classes-1."""

    @abstractmethod
    def numpy(self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        """The loss in NumPy: the reference."""

    @abstractmethod
    def numpy_gradient(
        self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """The gradient of the loss with respect to the scores, in NumPy."""

    @abstractmethod
    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """The loss by PyTorch's own function, a scalar tensor."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))
