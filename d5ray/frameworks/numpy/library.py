"""NumPy as an array library"""

from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from d5ray.frameworks.arrays.library import ArrayModule
from d5ray.networks.executors.array_library import allocated_bytes

Array = np.ndarray[Any, Any]


class NumPy(ArrayModule):
    """Arrays in host memory. What becomes infinite or NaN does so without a warning, as in the others."""

    name = "numpy"
    xp = np

    def put(self, value: Array) -> Array:
        return value

    def get(self, value: Array) -> Array:
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
