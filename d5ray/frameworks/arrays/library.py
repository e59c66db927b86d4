"""ArrayLibrary: what NumPy and CuPy do differently"""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np


class ArrayLibrary(ABC):
    """An array module `xp`, and the way to its arrays and back."""

    name: ClassVar[str]
    xp: Any

    @abstractmethod
    def put(self, value: np.ndarray[Any, Any]) -> Any:
        """The array where it is computed with; the same one where that is here."""

    @abstractmethod
    def get(self, value: Any) -> np.ndarray[Any, Any]:
        """The array in host memory, in memory of its own."""

    @abstractmethod
    def computing(self) -> AbstractContextManager[Any]:
        """The context in which a pass computes."""

    @abstractmethod
    def generator(self, seed: int) -> Any:
        """A generator of random numbers with `random(shape)`."""

    @abstractmethod
    def allocated(self) -> int | None:
        """The bytes that are allocated now."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for what the device computes."""
