"""Collectives: the communication of a split network's parts, given to an executor with the network"""

from collections.abc import Mapping
from typing import Any, Protocol, final

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext

DOMAIN = "d5ray.collective"  # of the nodes that exchange, and of those that compute one part of something
# Forwards and backwards, for a tensor that every part holds whole, divided along an axis, or as a summand:
ALL_REDUCE = "AllReduce"  # summands to their sum; the gradient as it is
ALL_REDUCE_GRADIENT = "AllReduceGradient"  # the tensor as it is; its gradients are summands of one
ALL_GATHER = "AllGather"  # parts to the whole; of the gradient the own part, of `sums_gradients` its sum
SCATTER = "Scatter"  # the own part of a whole; the gradient's parts to the whole
REDUCE_SCATTER = "ReduceScatter"  # of the summands' sum the own part; the gradient's parts to the whole
DROPOUT = "Dropout"  # the mask of the whole is drawn, and its part used
EXCHANGING = (ALL_REDUCE, ALL_REDUCE_GRADIENT, ALL_GATHER, SCATTER, REDUCE_SCATTER)


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


def group_of(context: NodeContext) -> Exchanging:
    """The communicator for a node of `DOMAIN`, now.

    Raises `ConfigurationError` where the executor was given none, or one of another part.
    """
    index, parts = int(context.required("index")), int(context.required("parts"))
    group: Exchanging | None = None if context.collectives is None else context.collectives.communicator
    if group is None:
        raise ConfigurationError(
            f"the node {context.node} exchanges tensors with the other parts of a split network: give the "
            "executor collectives=Collectives(communicator) of their group, before its first pass"
        )
    if (group.rank, group.size) != (index, parts):
        raise ConfigurationError(
            f"the node {context.node} belongs to part {index} of {parts}, and the communicator is that of "
            f"rank {group.rank} of {group.size}: make the network with split(network, plan, "
            f"index={group.rank}, parts={group.size})"
        )
    return group
