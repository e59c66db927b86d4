"""What a collective over messages moves at one member, as closed forms: the oracle of what is counted"""

from dataclasses import dataclass

from d5ray.distributed.communicators.point_to_point.collectives import (
    binomial_children,
    doubling_is_faster,
    parts,
)


@dataclass(frozen=True)
class CollectiveCost:
    """The bytes that one member moves, and the latencies of the whole operation one after the other."""

    bytes_sent: int
    bytes_received: int
    messages_sent: int
    rounds: int


def recursive_doubling_cost(rank: int, size: int, payload_bytes: int) -> CollectiveCost:
    """k messages each way with P = 2ᵏ + r; for the first 2r members 1 or k+1; k rounds, 2 more if r > 0."""
    core = 1 << (size.bit_length() - 1)
    steps, extra = core.bit_length() - 1, size - core
    messages = steps if rank >= 2 * extra else 1 if rank % 2 else steps + 1
    moved = messages * payload_bytes
    return CollectiveCost(moved, moved, messages, steps + 2 * (extra > 0))


def direct_allreduce_cost(rank: int, size: int, elements: int, itemsize: int) -> CollectiveCost:
    """n − own, and P − 1 times own, where own is this member's part of n: 2n (P−1)/P if parts are equal."""
    first = reduce_scatter_cost(rank, size, elements, itemsize)
    second = all_gather_cost(rank, size, elements, itemsize)
    return CollectiveCost(
        first.bytes_sent + second.bytes_sent,
        first.bytes_received + second.bytes_received,
        first.messages_sent + second.messages_sent,
        first.rounds + second.rounds,
    )


def allreduce_cost(rank: int, size: int, elements: int, itemsize: int) -> CollectiveCost:
    """The cost of an allreduce by whichever algorithm is taken."""
    if doubling_is_faster(size, elements * itemsize):
        return recursive_doubling_cost(rank, size, elements * itemsize)
    return direct_allreduce_cost(rank, size, elements, itemsize)


def reduce_scatter_cost(rank: int, size: int, elements: int, itemsize: int) -> CollectiveCost:
    """The cost of a reduce-scatter: sends all parts but its own, receives its own from all others."""
    own = own_bytes(rank, size, elements, itemsize)
    return CollectiveCost(elements * itemsize - own, (size - 1) * own, size - 1, 1)


def all_gather_cost(rank: int, size: int, elements: int, itemsize: int) -> CollectiveCost:
    """The cost of an all-gather: sends its own part to all others, receives all parts but its own."""
    own = own_bytes(rank, size, elements, itemsize)
    return CollectiveCost((size - 1) * own, elements * itemsize - own, size - 1, 1)


def all_to_all_cost(size: int, elements: int, itemsize: int) -> CollectiveCost:
    """The cost of an all-to-all: all parts but a member's own, each way."""
    moved = elements * itemsize * (size - 1) // size
    return CollectiveCost(moved, moved, size - 1, 1)


def broadcast_cost(rank: int, size: int, root: int, payload_bytes: int) -> CollectiveCost:
    """The cost of a broadcast: one payload from the parent, one to each child; the tree is ⌊log₂ P⌋ deep."""
    position = (rank - root) % size
    children = len(binomial_children(position, size))
    received = payload_bytes if position else 0
    return CollectiveCost(children * payload_bytes, received, children, size.bit_length() - 1)


def own_bytes(rank: int, size: int, elements: int, itemsize: int) -> int:
    part = parts(elements, size)[rank]
    return len(range(elements)[part]) * itemsize
