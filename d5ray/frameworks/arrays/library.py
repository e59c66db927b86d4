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
        """The array in host memory, whose memory is nobody else's."""

    @abstractmethod
    def computing(self) -> AbstractContextManager[Any]:
        """What surrounds a pass."""

    @abstractmethod
    def generator(self, seed: int) -> Any:
        """Random numbers, `random(shape)`."""

    @abstractmethod
    def allocated(self) -> int | None:
        """The bytes that are allocated now."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for what the device computes."""
