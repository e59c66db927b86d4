"""A group of one: nothing to exchange, nothing to wait for"""

from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.frameworks.host import flat_on_device, on_device


@final
class Solo(Communicator):
    """Every operation is the identity and moves no bytes."""

    backend = "solo"
    averages = True

    def common(self, elements: int, dtype: str) -> np.ndarray[Any, Any]:
        return self.allocate(elements, dtype)

    def _native(self, array: Any) -> Any:
        """The flat array of a caller's, in whatever memory: there is nobody to exchange it with."""
        return flat_on_device(array) if on_device(array) else super()._native(array)

    def _close(self) -> None:
        pass

    def _allreduce(self, flat: Any, operation: str, call: Signature) -> None:
        pass

    def _reduce_scatter(self, flat: Any, operation: str, call: Signature) -> None:
        pass

    def _all_gather(self, flat: Any, call: Signature) -> None:
        pass

    def _all_to_all(self, flat: Any, call: Signature) -> None:
        pass

    def _broadcast(self, flat: Any, root: int, call: Signature) -> None:
        pass

    def _barrier(self, call: Signature) -> None:
        pass

    def _exchange(
        self,
        outgoing: list[tuple[Any, int]],
        incoming: list[tuple[Any, int]],
        call: Signature,
        tag: int,
    ) -> None:
        pass
