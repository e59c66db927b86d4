"""ArrayModule: what NumPy and CuPy do differently; and NumPy"""

from abc import abstractmethod
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from d5ray.networks.executors.array_library import ArrayLibrary, HostArray, Region, allocated_bytes


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
        owner = array
        while hasattr(base := owner.base, "nbytes") and hasattr(base, "base"):  # no mapped file, no tensor
            owner = base
        address = array.ctypes.data if hasattr(array, "ctypes") else getattr(array.data, "ptr", 0)
        return Region(id(owner), owner.nbytes, int(address), array.nbytes)  # 0: one of NumPy's numbers


class NumPy(ArrayModule):
    """Arrays in host memory. What becomes infinite or NaN does so without a warning, as in the others."""

    name = "numpy"
    xp = np

    def put(self, value: HostArray) -> HostArray:
        return value

    def get(self, value: HostArray) -> HostArray:
        fresh = isinstance(value, np.ndarray) and value.flags.owndata and value.flags.writeable
        return value if fresh else np.array(value)

    def computing(self) -> AbstractContextManager[Any]:
        return np.errstate(all="ignore")

    def generator(self, seed: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(seed))

    def allocated(self) -> int | None:
        return allocated_bytes()

    def synchronize(self) -> None:
        """Nothing to wait for: NumPy has computed when it returns."""
