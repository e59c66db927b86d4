"""Accumulator: gradients of several passes, added up with a weight for each"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

Array = np.ndarray[Any, Any]


class Accumulator(ABC):
    """A sum of the gradients of one executor's passes; each is added before the next one begins."""

    @abstractmethod
    def begin(self) -> None:
        """Forget the gradients that were added."""

    @abstractmethod
    def add(self, parameters: Sequence[str], weight: float) -> None:
        """Add the gradients of these parameters that the last pass has left, times the weight."""

    @abstractmethod
    def gradient(self, parameter: str) -> Array | None:
        """A copy of a sum; None where nothing was added for this parameter."""


@final
class HostAccumulator(Accumulator):
    """An accumulator in NumPy arrays. gradient_of: gives a copy of a parameter's gradient."""

    def __init__(self, gradient_of: Callable[[str], Array]) -> None:
        self._gradient_of = gradient_of
        self._sums: dict[str, Array] = {}

    def begin(self) -> None:
        self._sums = {}

    def add(self, parameters: Sequence[str], weight: float) -> None:
        for name in parameters:
            found = self._gradient_of(name)
            found *= found.dtype.type(weight)
            if name in self._sums:
                self._sums[name] += found
            else:
                self._sums[name] = found

    def gradient(self, parameter: str) -> Array | None:
        found = self._sums.get(parameter)
        return None if found is None else np.array(found)
