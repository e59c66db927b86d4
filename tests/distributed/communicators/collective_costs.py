"""What a collective over messages moves at one member, as closed forms: the oracle of what is counted"""

from typing import NamedTuple

from d5ray.distributed.communicators.point_to_point.collectives import binomial_children


class CollectiveCost(NamedTuple):
    """The bytes that one member moves, and the latencies of the whole operation one after the other."""

    bytes_sent: int
    bytes_received: int
    messages_sent: int
    rounds: int


def costs_of(rank: int, size: int, elements: int, itemsize: int, root: int = 0) -> dict[str, CollectiveCost]:
    """By algorithm, with n bytes of which this member has its own part, and P = 2ᵏ + r members.

    Doubling: k messages each way, for the first 2r members 1 or k + 1; k rounds, and 2 more if r > 0.
    """
    whole, others = elements * itemsize, size - 1
    own = (elements * (rank + 1) // size - elements * rank // size) * itemsize
    k = size.bit_length() - 1
    r = size - 2**k
    doublings = k if rank >= 2 * r else 1 if rank % 2 else k + 1
    direct, turned = whole - own + others * own, whole * others // size
    children = len(binomial_children((rank - root) % size, size))
    return {
        "doubling": CollectiveCost(doublings * whole, doublings * whole, doublings, k + 2 * (r > 0)),
        "direct": CollectiveCost(direct, direct, 2 * others, 2),
        "reduce_scatter": CollectiveCost(whole - own, others * own, others, 1),
        "all_gather": CollectiveCost(others * own, whole - own, others, 1),
        "all_to_all": CollectiveCost(turned, turned, others, 1),
        "broadcast": CollectiveCost(children * whole, 0 if rank == root else whole, children, k),
    }
