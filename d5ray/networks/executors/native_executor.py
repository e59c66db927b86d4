"""NativeExecutor: a framework's own model, run as it is, with the two methods of a GraphExecutor"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError, nearest
from d5ray.networks.events.event import GraphEvent
from d5ray.networks.events.observer import Observer, checked
from d5ray.networks.executors.array_library import ArrayLibrary
from d5ray.networks.executors.graph_executor import Array, Arrays, announced
from d5ray.networks.executors.inputs import check_arrays, check_complete, check_names
from d5ray.operators.loss import Loss

LABELS, LOSS, OUTPUT = "labels", "loss", "output"
GRADIENT = "_grad"


class NativeExecutor(ABC):
    """An executor of a model as it is: the framework calls it. Of the events those around it happen.

    inputs are known by the names that the model gives its own; `inference_and_backprop` takes "labels" too,
    if a loss was given here. A model that gives one tensor has the output "output", several are "output_0",
    "output_1", …, and those of a dictionary have its keys; one of them may be the loss.
    """

    def __init__(
        self,
        inputs: Sequence[str],
        library: ArrayLibrary,
        loss: Loss | None,
        events: GraphEvent | Sequence[GraphEvent],
    ) -> None:
        self.inputs, self.loss = tuple(inputs), loss
        self.events = checked(events)
        self._library = library
        self._observer = Observer(self.events, library.allocated) if self.events else None
        self._gradients: Mapping[str, Any] | None = None  # by parameter; None for one that got none

    @final
    def inference(self, inputs: Arrays) -> dict[str, Array]:
        """The model's outputs, in evaluation mode, without gradients; labels are taken, and not needed."""
        self._check(inputs, self.inputs)
        return self._observed(inputs, None)

    @final
    def inference_and_backprop(self, inputs: Arrays, loss: str = LOSS) -> dict[str, Array]:
        """The outputs and the loss, in training mode; gradients are there afterwards.

        Raises `ConfigurationError` for inputs that are unknown or missing, and for a loss that the model does
        not give, or that is not one number.
        """
        labelled = self.loss is not None and loss == LOSS
        self._check(inputs, (*self.inputs, LABELS) if labelled else self.inputs)
        return self._observed(inputs, loss)

    @final
    def gradient(self, loss: str = LOSS) -> list[tuple[str, str]]:
        """The parameters that are trained, each with the name of its gradient."""
        return [(name, f"{name}{GRADIENT}") for name in self.trained]

    @final
    def fetch_tensors(self, names: Iterable[str]) -> list[Array]:
        """Copies of parameters, other state, and gradients of the last training pass."""
        return [self._fetch(name) for name in names]

    @final
    def feed_tensor(self, name: str, value: Array) -> None:
        """Give a parameter or other state another value."""
        known = self._tensors().get(name)
        if known is None:
            raise ConfigurationError(f"the model has no parameter {name!r}: {nearest(name, self.trained)}")
        before = self._array(known)
        if np.shape(value) != before.shape:
            raise ConfigurationError(
                f"{name!r} of the model has the shape {before.shape}, found {np.shape(value)}"
            )
        self._assign(known, np.asarray(value, before.dtype))

    @property
    @abstractmethod
    def trained(self) -> tuple[str, ...]:
        """The parameters that gradients are computed for."""

    @abstractmethod
    def _run(self, inputs: Arrays, loss: str | None) -> dict[str, Any]:
        """The outputs; with a loss in training mode, and `_gradients`."""

    @abstractmethod
    def _tensors(self) -> Mapping[str, Any]:
        """Parameters and other state by name, as they are."""

    @abstractmethod
    def _assign(self, tensor: Any, value: Array) -> None:
        """Give one of them this value, which is of its shape and type."""

    def _array(self, tensor: Any) -> Array:
        """A copy in host memory."""
        return np.array(self._library.host(tensor))

    def _fetch(self, name: str) -> Array:
        own = self._tensors()
        if name in own:
            return self._array(own[name])
        parameter = name.removesuffix(GRADIENT)
        if name == parameter or parameter not in self.trained:
            names = [*self.trained, *(f"{each}{GRADIENT}" for each in self.trained)]
            raise ConfigurationError(f"the model has no tensor {name!r}: {nearest(name, names)}")
        if self._gradients is None:
            raise ConfigurationError(f"there is no gradient {name!r} yet: call inference_and_backprop before")
        found = self._gradients.get(parameter)
        return np.zeros_like(self._array(own[parameter])) if found is None else self._array(found)

    def _observed(self, inputs: Arrays, loss: str | None) -> dict[str, Array]:
        def run(given: Arrays) -> dict[str, Array]:
            return {name: self._array(value) for name, value in self._run(given, loss).items()}

        observer = self._observer
        return (run if observer is None else announced(run, observer, loss is not None))(inputs)

    def _check(self, inputs: Arrays, needed: Sequence[str]) -> None:
        known = dict.fromkeys((*self.inputs, LABELS))
        check_names(known, inputs, of="model")
        check_arrays(known, inputs)
        check_complete(known, inputs, needed, "the model")


def named_outputs(found: Any, is_tensor: Any) -> dict[str, Any]:
    """The outputs of a model by names. Raises `ConfigurationError` for what is no tensor, or holds none."""
    if is_tensor(found):
        return {OUTPUT: found}
    if isinstance(found, Mapping) and found and all(is_tensor(value) for value in found.values()):
        return dict(found)
    if isinstance(found, (tuple, list)) and found and all(is_tensor(value) for value in found):
        return {f"{OUTPUT}_{place}": value for place, value in enumerate(found)}
    raise ConfigurationError(
        f"the model gave a {type(found).__name__}: a model that is run as it is gives a tensor, a tuple of "
        "them, or a dictionary"
    )


def the_loss(outputs: Mapping[str, Any], loss: str, scores_loss: Any) -> Any:
    """The tensor that is differentiated; scores_loss(scores) computes it where a loss was given."""
    if loss in outputs:
        return outputs[loss]
    if scores_loss is not None and loss == LOSS:
        if OUTPUT not in outputs:
            raise ConfigurationError(
                f"the model gives {', '.join(map(repr, outputs))}, and the loss compares labels with one "
                "output: let the model give one tensor, or its loss under the name 'loss'"
            )
        return scores_loss(outputs[OUTPUT])
    raise ConfigurationError(
        f"the model gives no {loss!r} to differentiate: {nearest(loss, outputs)}; give the executor a loss "
        "such as SoftmaxCrossEntropyLoss(), or let the model give one under this name"
    )
