"""Loss: one number from a network's output and its targets"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from d5ray.checks import KnownKeywords
from d5ray.errors import ConfigurationError

if TYPE_CHECKING:
    import torch


class Loss(KnownKeywords, ABC):
    """A mean over the batch: subclass it, write `check` and `torch`, and give it to an `Experiment`.

    One that `classifies` takes scores (batch, ..., classes) and labels (batch, ...), and evaluations count
    how often the largest score is the label's; one that does not takes whatever the network and the data set
    give, (batch, ...) each, and there is no accuracy: what is right then is for a `Quality` to say.

    Where batches count by more than their samples, as where labels are ignored, `torch` gives (sum, weight):
    the loss is sum / weight of all that is computed together, pieces and agents; see `weighted`.

    A loss gets the model's scores: the tensor that it returns, what is called `logits`, or the first tensor
    of several. One that `sees_output` gets all that the model returns, under PyTorch.

    `name` is the type of the operator by which frameworks other than PyTorch compute it; without one, and
    without `numpy` and `numpy_gradient`, a loss is for PyTorch alone. Hyperparameters are plain attributes.
    Implementations stand in the catalogue, `d5ray.ops`.
    """

    name: ClassVar[str] = ""
    classifies: bool = True
    classes_axis: int = -1  # of the scores
    ignored: int | None = None  # a label that counts for nothing
    sees_output: ClassVar[bool] = False
    takes_labels: ClassVar[bool] = False  # whether the model is given the labels, and computes the loss
    # Whether batches count by a weight of their own: True: by `counted`, of whose labels this is the mean;
    # False: by their samples; None: as `torch` says, by giving (sum, weight) or a mean.
    weighted: ClassVar[bool | None] = None
    shifts: bool = False  # whether nothing predicts a sequence's first label, see `Executor.counting`

    @abstractmethod
    def check(self, output_shape: tuple[int, ...], classes: int) -> None:
        """Raise `ConfigurationError` if a network's output (batch, ...) does not fit that many classes."""

    def numpy(self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        """The loss in NumPy: the reference."""
        raise self.lacking("NumPy")

    def numpy_gradient(
        self, scores: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """The gradient of the loss with respect to the scores, in NumPy."""
        raise self.lacking("NumPy")

    @abstractmethod
    def torch(self, scores: "torch.Tensor", labels: "torch.Tensor") -> Any:
        """The loss by PyTorch's own functions, a scalar tensor; or (sum, weight), a scalar and a number."""

    def counted(self, labels: np.ndarray[Any, Any]) -> int:
        """The number of these labels that count."""
        if self.ignored is None:
            return labels.size
        return int(((labels[:, 1:] if self.shifts else labels) != self.ignored).sum())

    def lacking(self, framework: str) -> ConfigurationError:
        """The error for a framework that this is not written for."""
        return ConfigurationError(
            f"{self!r} has no form for {framework}: train under PyTorch, executor='torch', or write one"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))
