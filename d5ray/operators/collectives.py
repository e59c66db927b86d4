"""Collectives: the communication of a split network's parts, given to an executor with the network"""

from collections.abc import Mapping
from typing import Any, Final, Protocol, final

DOMAIN: Final = "d5ray.collective"  # of nodes that exchange, and of those that compute one part of something


class Exchanging(Protocol):
    """The part of a `Communicator` (`d5ray.distributed.communicators.communicator`) that operators need."""

    rank: int
    size: int

    def allreduce(self, array: Any, operation: str = "sum") -> None:
        """Replace the array by the sum, mean, least or greatest over the group."""

    def all_gather(self, array: Any) -> None:
        """Complete the array, of which every member has its own part."""

    def reduce_scatter(self, array: Any, operation: str = "sum") -> slice:
        """Reduce the array over the group; only the own part, where the slice says, holds the result."""


@final
class Collectives:
    """The group of the parts of one split network; the communicator's rank is the part's index.

    All parts run the same kinds of passes in the same order: every collective is called by all of them.

    communicator: may be set later, before the first pass, and again if the same parts form a new group.
    sizes: the values of the whole network's open sizes, such as "batch", in the current pass; executors set
    it. An axis of such a size is divided as evenly as possible, the first parts one longer.
    """

    def __init__(self, communicator: Exchanging | None = None) -> None:
        self.communicator = communicator
        self.sizes: Mapping[str, int] = {}

    def __repr__(self) -> str:
        group = self.communicator
        return f"Collectives({'' if group is None else f'part {group.rank} of {group.size}'})"
