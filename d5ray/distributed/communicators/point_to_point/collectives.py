"""Collectives made of messages between two members: who sends what to whom, and what that costs

With P members, an array of n bytes, the latency α of a message and the time β of a byte:

| collective | algorithm | time | bytes a member sends |
|---|---|---|---|
| allreduce, barrier | recursive doubling | (α + βn) log₂ P | n log₂ P |
| allreduce | reduce-scatter, then all-gather | 2α + 2βn (P−1)/P | 2n (P−1)/P |
| reduce-scatter | everyone to everyone | α + βn (P−1)/P | n (P−1)/P |
| all-gather | everyone to everyone | α + βn (P−1)/P | n (P−1)/P |
| all-to-all | everyone to everyone | α + βn (P−1)/P | n (P−1)/P |
| broadcast | binomial tree | ⌊log₂ P⌋ α + ⌈log₂ P⌉ βn | ⌈log₂ P⌉ n at most |

Sources: Thakur, Rabenseifner, Gropp, doi 10.1177/1094342005051521; Chan, Heimlich, Purkayastha, van de
Geijn, doi 10.1002/cpe.1206. "Everyone to everyone" sends all messages at once, where those papers have a
ring or recursive halving: the same bytes, in one latency instead of P−1 or log₂ P.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

Flat = np.ndarray[Any, Any]
Pieces = Sequence[tuple[Flat, int]]  # flat arrays, each with the rank it goes to or comes from

MESSAGE_BYTES = 65_536  # that take as long as a message takes anyway, α/β: over sockets within a machine
REDUCED_BYTES = 0.2  # that are sent in the time in which a byte is reduced, γ/β
BLOCK_BYTES = 65_536  # of an array, so that the same block of several stays in the cache
Reduce = Callable[[Flat, Flat, Flat], None]
_UFUNCS = {"sum": np.add, "min": np.minimum, "max": np.maximum}
_HALVES = ("float16", "bfloat16")  # NumPy takes 7 to 45 times as long for them as PyTorch does


class CollectiveExchange(ABC):
    """One operation under way at one member."""

    rank: int
    size: int

    @abstractmethod
    def swap(self, outgoing: Pieces, incoming: Pieces) -> None:
        """Send to and receive from other members, all at once; at most one array to and from each."""

    @abstractmethod
    def spare(self, like: Flat, elements: int) -> Flat:
        """An array (elements,) of the same type to receive into; the next call may give the same memory."""


def parts(elements: int, size: int) -> list[slice]:
    """Equal parts of a flat array: in order, of sizes that differ by one at most."""
    edges = [elements * rank // size for rank in range(size + 1)]
    return [slice(low, high) for low, high in pairwise(edges)]


# -- allreduce ---------------------------------------------------------------------------------------------


def recursive_doubling(exchange: CollectiveExchange, flat: Flat, reduce: Reduce) -> None:
    """array ← the reduction of all, in ⌊log₂ P⌋ rounds: in round k, partners are 2ᵏ apart.

    Unless P is a power of two, 2ᵏ + r, the first 2r members form pairs, in which one reduces for both
    first and hands back the result last. Both of two partners reduce in the order of ranks, so all members
    end with the same bits. With an empty array this is a barrier.
    """
    rank, core = exchange.rank, _power_of_two(exchange.size)
    extra = exchange.size - core
    theirs = exchange.spare(flat, flat.size)
    if rank < 2 * extra:
        if rank % 2:
            exchange.swap([(flat, rank - 1)], [])
            exchange.swap([], [(flat, rank - 1)])
            return
        exchange.swap([], [(theirs, rank + 1)])
        reduce(flat, theirs, flat)
    position = rank // 2 if rank < 2 * extra else rank - extra
    distance = 1
    while distance < core:
        other = position ^ distance
        partner = 2 * other if other < extra else other + extra
        exchange.swap([(flat, partner)], [(theirs, partner)])
        first, second = (flat, theirs) if rank < partner else (theirs, flat)
        reduce(first, second, flat)
        distance *= 2
    if rank < 2 * extra:
        exchange.swap([(flat, rank + 1)], [])


def direct_allreduce(exchange: CollectiveExchange, flat: Flat, reduce: Reduce) -> None:
    """array ← the reduction of all: every member reduces one part, and sends that to all."""
    reduce_scatter(exchange, flat, reduce)
    all_gather(exchange, flat)


def doubling_rounds(size: int) -> int:
    """The rounds of recursive doubling: k with P = 2ᵏ + r, and 2 more if r > 0."""
    return size.bit_length() - 1 + 2 * (size > _power_of_two(size))


def doubling_is_faster(size: int, payload_bytes: int) -> bool:
    """True if recursive doubling is the faster way for an allreduce, rather than the direct one.

    k (α + (β + γ) n) against 2 (P−1) α + (2β + γ) n (P−1)/P, with the k rounds of doubling.

    >>> [doubling_is_faster(4, payload_bytes) for payload_bytes in (4, 300_000, 1_000_000)]
    [True, True, False]
    """
    rounds = doubling_rounds(size)
    part = payload_bytes * (size - 1) / size
    doubling = rounds * (MESSAGE_BYTES + (1 + REDUCED_BYTES) * payload_bytes)
    return doubling <= 2 * (size - 1) * MESSAGE_BYTES + (2 + REDUCED_BYTES) * part


# -- everyone to everyone ----------------------------------------------------------------------------------


def reduce_scatter(exchange: CollectiveExchange, flat: Flat, reduce: Reduce) -> None:
    """This member's part of the array ← ((x₀ + x₁) + x₂) + …, all members' in the order of ranks."""
    own = parts(flat.size, exchange.size)
    mine = flat[own[exchange.rank]]
    theirs = exchange.spare(flat, mine.size * (exchange.size - 1)).reshape(exchange.size - 1, mine.size)
    others = _others(exchange)
    incoming = [(theirs[row], rank) for row, rank in enumerate(sorted(others))]
    exchange.swap([(flat[own[rank]], rank) for rank in others], incoming)
    by_rank = [*theirs[: exchange.rank], mine, *theirs[exchange.rank :]]
    step = BLOCK_BYTES // flat.itemsize
    for low in range(0, mine.size, step):
        total, *rest, last = (array[low : low + step] for array in by_rank)
        for block in rest:
            reduce(total, block, total)
        reduce(total, last, mine[low : low + step])


def all_gather(exchange: CollectiveExchange, flat: Flat) -> None:
    """array ← every member's own part of it."""
    own = parts(flat.size, exchange.size)
    others = _others(exchange)
    mine = flat[own[exchange.rank]]
    exchange.swap([(mine, rank) for rank in others], [(flat[own[rank]], rank) for rank in others])


def all_to_all(exchange: CollectiveExchange, flat: Flat) -> None:
    """Part i of the array ← part `rank` of member i's; by way of a spare array as large as this one."""
    own = parts(flat.size, exchange.size)
    others = _others(exchange)
    theirs = exchange.spare(flat, flat.size)
    exchange.swap(
        [(flat[own[rank]], rank) for rank in others], [(theirs[own[rank]], rank) for rank in others]
    )
    for rank in others:
        flat[own[rank]] = theirs[own[rank]]


# -- broadcast ---------------------------------------------------------------------------------------------


def broadcast(exchange: CollectiveExchange, flat: Flat, root: int) -> None:
    """array ← the root's: down a binomial tree, to all children at once, the largest subtree first."""
    position = (exchange.rank - root) % exchange.size
    if position:
        parent = position & (position - 1)
        exchange.swap([], [(flat, (parent + root) % exchange.size)])
    children = [(child + root) % exchange.size for child in binomial_children(position, exchange.size)]
    if children:
        exchange.swap([(flat, child) for child in children], [])


def binomial_children(position: int, size: int) -> list[int]:
    """Whom the member at `position` (the root is 0) sends to in a binomial tree over `size`.

    >>> [binomial_children(position, 6) for position in range(6)]
    [[4, 2, 1], [], [3], [], [5], []]
    """
    children, bit = [], 1
    while bit < size and not position & (2 * bit - 1):
        if position + bit < size:
            children.append(position + bit)
        bit *= 2
    return children[::-1]


# ----------------------------------------------------------------------------------------------------------


def _others(exchange: CollectiveExchange) -> list[int]:
    """All other ranks, beginning with the next one, so that not all send to the same member first."""
    return [(exchange.rank + distance) % exchange.size for distance in range(1, exchange.size)]


def _power_of_two(size: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (size.bit_length() - 1)


@cache
def reduction(operation: str, dtype: np.dtype[Any]) -> Reduce:
    """reduce(a, b, out): out ← a + b, min(a, b) or max(a, b); the arrays (n,) are of `dtype`.

    Sums of halves are rounded to halves. A NaN in either array is a NaN in the result.
    """
    if dtype.name in _HALVES:
        from d5ray.frameworks.torch.half_precision import reduce_halves  # noqa: PLC0415 - imports torch

        return reduce_halves(operation)
    ufunc = _UFUNCS[operation]

    def reduce(a: Flat, b: Flat, out: Flat) -> None:
        ufunc(a, b, out=out)

    return reduce
