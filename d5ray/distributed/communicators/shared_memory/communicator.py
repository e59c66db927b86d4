"""Agents of one node on its processors: arrays are exchanged in memory that the agents' processes share"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.backend_hooks import Pairs
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.shared_memory.arena import Arena
from d5ray.distributed.communicators.shared_memory.barrier import Barrier
from d5ray.distributed.communicators.shared_memory.bounded_wait import WaitGuard
from d5ray.distributed.communicators.shared_memory.channels import Channels
from d5ray.distributed.communicators.shared_memory.chunked import Chunked, ZeroCopy
from d5ray.distributed.communicators.shared_memory.doorbell import Doorbells
from d5ray.distributed.communicators.shared_memory.message_passing import (
    Incoming,
    Neighbors,
    Outgoing,
    exchange,
)
from d5ray.distributed.communicators.shared_memory.reduce_kernels import Flat
from d5ray.distributed.communicators.shared_memory.segments import ALLOCATIONS, Segment, share
from d5ray.distributed.communicators.shared_memory.segments import supported as supported
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.membership import Membership
from d5ray.distributed.group.waits import PresentWait, declared
from d5ray.distributed.rpc.dtypes import numpy_dtype
from d5ray.distributed.rpc.shared_region import PAGE_BYTES, pages
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError, PeerLost

SMALL_BYTES = 2**16  # up to here one barrier more costs as much as it saves


@final
class SharedMemory(Communicator):
    """Collectives of members on one node; the fastest for arrays that come from `allocate`.

    Large arrays of one allocation are worked on where they lie, each member on its part; all others go
    through memory of the group by chunks. Sums are in the order of the ranks, and the same bits on all
    members. Counted is what this member reads in the memory of others, and what others write to its own;
    a round is a wait for other members. With n members and an array of B bytes of which this member has b:

    - allreduce: B(n−1) either way up to `SMALL_BYTES`, else B − b + b(n−1)
    - reduce_scatter: sends B − b, receives b(n−1); all_gather the other way round
    - all_to_all: (n−1)B/n either way
    - broadcast: sends B(n−1) at the root, receives B at the others
    - to and from neighbours: B for each
    """

    backend = "shared_memory"
    averages = True  # `_allreduce` and `_reduce_scatter` know "mean", which takes no pass of its own

    def __init__(self, group: Group, topology: Topology) -> None:
        super().__init__(group, topology)
        if reason := supported():
            raise ConfigurationError(f"{reason}: choose communicator='socket'")
        if len(set(group.nodes)) > 1:
            raise ConfigurationError(
                f"the members of {group.name!r} are on the nodes {', '.join(sorted(set(group.nodes)))}, but "
                "share memory only on one: choose communicator='socket'"
            )
        self._membership = Membership(group)
        self._allocations = 0
        self._guard = WaitGuard(self._membership)
        self._membership.waits = self.told_waits
        try:
            self._arena = Arena(self._membership, self._guard)
        except BaseException:
            self._membership.leave()
            raise
        self._doorbells = Doorbells(self._arena, self._guard)
        self._node_barrier = Barrier(self._arena, self._doorbells, self._guard)
        self._channels = Channels(self._arena, self._doorbells, self._guard)
        kernels = self._kernels
        self._chunked = Chunked(self._arena, self._node_barrier, kernels)
        self._zero_copy = ZeroCopy(self.rank, kernels)
        self._neighbors = Neighbors(self._arena, self._channels, self._doorbells, kernels)

    def allocate(self, elements: int, dtype: str) -> Flat:
        """A flat array of zeros (elements,) that all members of this group, and of its sub-groups, reach."""
        kind, size = numpy_dtype(dtype), elements * numpy_dtype(dtype).itemsize
        stride = max(PAGE_BYTES, pages(size))
        start = self.rank * stride
        segment, identity = self._share(
            "allocate", f"{elements:,} × {dtype}", self.size * stride, start, start + stride
        )
        ALLOCATIONS.add(segment, identity)
        return segment.bytes[start : start + size].view(kind)

    def common(self, elements: int, dtype: str) -> Flat:
        """One flat array of zeros (elements,) in the memory of all members; it keeps no order of writes."""
        kind, size = numpy_dtype(dtype), elements * numpy_dtype(dtype).itemsize
        stride = max(PAGE_BYTES, pages(size))
        mine = stride if self.rank == 0 else 0
        segment, _ = self._share("common", f"{elements:,} × {dtype} in common", stride, 0, mine)
        return segment.bytes[:size].view(kind)

    def _share(self, what: str, wanted: str, size: int, start: int, stop: int) -> tuple[Segment, int]:
        """A segment that all members map, of which this one reserves start to stop; and its identity."""
        self._guard.check()
        self._allocations += 1
        key = f"{what}/{self._allocations}"
        identity = self._agree(key, wanted)
        return share(self._membership, key, size, start, stop), identity

    def _waits(self) -> list[PresentWait]:
        return declared(self.group, self._guard.waiting) + self._membership.own_waits()

    def _agree(self, key: str, wanted: str) -> int:
        """A number that all members know this allocation by; they must want the same."""
        own = f"{secrets.randbits(62) | 1}|{wanted}"
        answers = [answer.decode().split("|") for answer in self._membership.gather(key, own.encode())]
        if len({words for _, words in answers}) > 1:
            by_rank = "; ".join(f"rank {rank}: {words}" for rank, (_, words) in enumerate(answers))
            error = ConfigurationError(
                f"the members of a group allocate different arrays ({by_rank}): every member must ask for "
                "the same"
            )
            raise self._guard.fail(error)
        return int(answers[0][0])

    def _close(self) -> None:
        self._guard.end(PeerLost(self.rank, "this member has left the group"))
        self._membership.leave()

    # -- collectives -----------------------------------------------------------------------------------

    def _allreduce(self, flat: Flat, operation: str, call: Signature) -> None:
        if flat.nbytes <= SMALL_BYTES:
            rounds = self._chunked.allreduce_whole(flat, operation, call)
            moved = (self.size - 1) * flat.nbytes
        else:
            parts = self.bounds(flat.size)
            rounds = self._either(
                flat, call, self._zero_copy.allreduce, self._chunked.allreduce, parts, operation
            )
            own = self._own_bytes(flat, parts)
            moved = flat.nbytes - own + (self.size - 1) * own
        self._count(moved, moved, rounds)

    def _reduce_scatter(self, flat: Flat, operation: str, call: Signature) -> None:
        parts = self.bounds(flat.size)
        rounds = self._either(
            flat, call, self._zero_copy.reduce_scatter, self._chunked.reduce_scatter, parts, operation
        )
        own = self._own_bytes(flat, parts)
        self._count(flat.nbytes - own, (self.size - 1) * own, rounds)

    def _all_gather(self, flat: Flat, call: Signature) -> None:
        parts = self.bounds(flat.size)
        rounds = self._either(flat, call, self._zero_copy.all_gather, self._chunked.all_gather, parts)
        own = self._own_bytes(flat, parts)
        self._count((self.size - 1) * own, flat.nbytes - own, rounds)

    def _all_to_all(self, flat: Flat, call: Signature) -> None:
        parts = self.bounds(flat.size)
        rounds = self._either(flat, call, self._zero_copy.all_to_all, self._chunked.all_to_all, parts)
        moved = flat.nbytes - self._own_bytes(flat, parts)
        self._count(moved, moved, rounds)

    def _broadcast(self, flat: Flat, root: int, call: Signature) -> None:
        rounds = self._either(flat, call, self._zero_copy.broadcast, self._chunked.broadcast, root)
        if self.rank == root:
            self._count((self.size - 1) * flat.nbytes, 0, rounds)
        else:
            self._count(0, flat.nbytes, rounds, messages=0)

    def _barrier(self, call: Signature) -> None:
        self._node_barrier.wait(call)
        self._count(0, 0, 1)

    # -- neighbours and pairs --------------------------------------------------------------------------

    def _combine(
        self,
        flat: Flat,
        own: float | None,
        sources: Mapping[int, float],
        targets: Sequence[int],
        call: Signature,
    ) -> None:
        self._guard.check()
        self._neighbors.combine(flat, own, sources, targets, call)
        self._count(len(targets) * flat.nbytes, len(sources) * flat.nbytes, 1, messages=len(targets))

    def _exchange(self, outgoing: Pairs, incoming: Pairs, call: Signature, tag: int) -> None:
        self._guard.check()
        transfers: list[Outgoing | Incoming] = [
            Outgoing(self._channels, flat, rank, call, tag) for flat, rank in outgoing
        ]
        transfers += [Incoming(self._channels, flat, rank, call, tag) for flat, rank in incoming]
        exchange(transfers, call, self._doorbells)
        self._moved_pairs(outgoing, incoming, rounds=1)

    # --------------------------------------------------------------------------------------------------

    def _either(
        self,
        flat: Flat,
        call: Signature,
        directly: Callable[..., None],
        through_slots: Callable[..., int],
        *what: Any,
    ) -> int:
        """Do it on all members' arrays where they are large and lie in one allocation; gives the rounds."""
        if flat.nbytes <= SMALL_BYTES:
            return through_slots(flat, *what, call)
        place, whole = ALLOCATIONS.find(flat)
        self._node_barrier.wait(call, place)
        offsets = self._node_barrier.offsets()
        arrays = [whole[offset : offset + flat.nbytes].view(flat.dtype) for offset in offsets]
        if not arrays:
            return 1 + through_slots(flat, *what, call)
        directly(arrays, *what)
        self._node_barrier.wait(call)
        return 2

    def _own_bytes(self, flat: Flat, parts: Sequence[slice]) -> int:
        part = parts[self.rank]
        return int((part.stop - part.start) * flat.itemsize)

    def _count(self, sent: int, received: int, rounds: int, messages: int | None = None) -> None:
        count = self.size - 1 if messages is None else messages
        self._moved(sent=sent, received=received, messages=count, rounds=rounds)
