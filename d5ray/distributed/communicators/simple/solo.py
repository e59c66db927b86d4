"""Communicators without others: of a group of one, and of an agent that came after its group was formed"""

from abc import abstractmethod
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.errors import ConfigurationError
from d5ray.frameworks.host import flat_on_device, on_device


class _Alone(Communicator):
    """Does the same in every operation."""

    @abstractmethod
    def _do(self) -> None: ...

    def _allreduce(self, *args: Any, **options: Any) -> None:
        self._do()

    _reduce_scatter = _all_gather = _all_to_all = _broadcast = _barrier = _exchange = _allreduce

    def _close(self) -> None:
        pass


@final
class Solo(_Alone):
    """A group of one: every operation is the identity and moves no bytes."""

    backend = "solo"
    averages = True

    def _do(self) -> None:
        pass

    def common(self, elements: int, dtype: str) -> np.ndarray[Any, Any]:
        return self.allocate(elements, dtype)

    def _native(self, array: Any) -> Any:
        """The flat array of a caller's, in whatever memory: there is nobody to exchange it with."""
        return flat_on_device(array) if on_device(array) else super()._native(array)


@final
class Absent(_Alone):
    """Has the rank, size and topology of the group; every operation raises `ConfigurationError`."""

    backend = "absent"

    def _do(self) -> None:
        raise ConfigurationError(
            f"rank {self.rank} joined {self.group.name!r} when its group was formed already: it reaches the "
            "others by self.server and self.peers alone"
        )
