"""ArrayModule: what NumPy and CuPy do differently"""

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from d5ray.networks.executors.array_library import ArrayLibrary, HostArray
from d5ray.networks.executors.saved_bytes import Region, region_of


class ArrayModule(ArrayLibrary):
    """An array module `xp` with NumPy's functions, and the way to its arrays and back."""

    @abstractmethod
    def computing(self) -> AbstractContextManager[Any]:
        """The context in which a pass computes."""

    @abstractmethod
    def generator(self, seed: int) -> Any:
        """A generator of random numbers with `random(shape)`."""

    def host(self, value: Any) -> HostArray:
        host = value if isinstance(value, (np.ndarray, np.generic)) else self.get(value)
        return np.asarray(host, order="C")

    def type_of(self, array: Any) -> str:
        if not isinstance(array, (self.xp.ndarray, np.generic)):
            raise TypeError(f"{type(array).__name__} is no array of {self.name}")
        return str(array.dtype)

    def region_of(self, array: Any) -> Region:
        return region_of(array)
