"""JaxModel: a model of any library of JAX's as a pure function of its tensors by name"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import jax

Tensors = Mapping[str, Any]  # arrays by their names in the model
TRAINING: Final = ("train", "training")
EVALUATING: Final = ("deterministic", "inference", "use_running_average")
KEYS: Final = ("key", "rng")


class JaxModel(ABC):
    """A model without its values, as a function of its tensors; equal models are compiled once.

    Its tensors are those that are trained, and its state: all other arrays that it holds, such as the running
    statistics of a BatchNorm, which a call in training replaces.
    """

    @abstractmethod
    def call(
        self, tensors: Tensors, inputs: Any, key: jax.Array, *, training: bool, **more: Any
    ) -> tuple[Any, dict[str, Any]]:
        """The model's output for a batch, and all of its state afterwards.

        inputs: an array, a tuple of what it takes by position, or a dictionary of what it takes by name.
        key: of what is drawn in training. more: what it takes by name beside them, such as `labels`.
        """

    @abstractmethod
    def filled(self, tensors: Tensors) -> Any:
        """The user's own model with these tensors, in evaluation mode."""


@final
@dataclass(frozen=True)
class OpenedModel:
    """A model apart from its first values: of what is trained, and of its state."""

    model: JaxModel
    trained: Tensors
    state: Tensors


def mode_of(function: Callable[..., Any], key: Any, *, training: bool, **more: Any) -> dict[str, Any]:
    """The arguments by which a function is told the mode and a key, of those that it has.

    >>> mode_of(lambda x, *, train, key=None: x, 5, training=True)
    {'train': True, 'key': 5}
    """
    said: dict[str, Any] = dict.fromkeys(TRAINING, training) | dict.fromkeys(EVALUATING, not training)
    said |= dict.fromkeys(KEYS, key) | more
    known = parameters_of(function)
    return {name: value for name, value in said.items() if name in known}


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the parameters that a function, or the making of a class, has; none where nobody knows.

    A class may have a metaclass that takes anything, as Flax's do.
    """
    taken: Any = getattr(function, "__init__", None) if isinstance(function, type) else function
    try:
        return tuple(inspect.signature(taken).parameters)
    except (TypeError, ValueError):  # written in C
        return ()
