"""The communicator of an agent that came when the group was formed: it has a rank, and no operations"""

from typing import Any, final

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError


@final
class Absent(Communicator):
    """Rank, size and topology of the group; every operation raises `ConfigurationError`."""

    backend = "absent"

    def __init__(self, group: Group, topology: Topology) -> None:
        super().__init__(group, topology)

    def _close(self) -> None:
        pass

    def _refuse(self) -> None:
        raise ConfigurationError(
            f"rank {self.rank} joined {self.group.name!r} when its group was formed already: it reaches the "
            "others by self.server and self.peers alone"
        )

    def _allreduce(self, flat: Any, operation: str, call: Signature) -> None:
        self._refuse()

    def _reduce_scatter(self, flat: Any, operation: str, call: Signature) -> None:
        self._refuse()

    def _all_gather(self, flat: Any, call: Signature) -> None:
        self._refuse()

    def _all_to_all(self, flat: Any, call: Signature) -> None:
        self._refuse()

    def _broadcast(self, flat: Any, root: int, call: Signature) -> None:
        self._refuse()

    def _barrier(self, call: Signature) -> None:
        self._refuse()

    def _exchange(
        self,
        outgoing: list[tuple[Any, int]],
        incoming: list[tuple[Any, int]],
        call: Signature,
        tag: int,
    ) -> None:
        self._refuse()
