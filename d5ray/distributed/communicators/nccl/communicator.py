"""Agents on GPUs: collectives and grouped send/recv over NCCL, by way of CuPy"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.agreement.watchdog import Watchdog
from d5ray.distributed.communicators.backend_hooks import Pairs
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.membership import Membership
from d5ray.distributed.group.waits import PresentWait
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError, D5Error
from d5ray.frameworks.cupy.nccl_group import NcclGroup, available, device_view, follow, mark

MOST_PARTNERS: Final = 16  # with each of which a connection takes memory of the GPU


@final
class NCCL(Communicator):
    """One NCCL communicator per (group name, epoch). Arrays of CuPy, or of PyTorch, on this member's GPU.

    A signature that this member has not called before is compared with the others' before data moves;
    members that wait longer than a second compare theirs too, since NCCL itself would wait for ever. Pair
    messages have no tags in NCCL: between two members they must be received in the order they were sent.
    Bytes are those of the ring algorithms, 2(n−1)/n × payload for an allreduce, though NCCL may choose
    others. Returns when the operation is done on the device.
    """

    backend = "nccl"
    averages = True

    def __init__(self, group: Group, topology: Topology) -> None:
        super().__init__(group, topology)
        device = group.device if group.device != "cpu" else "cuda:0"
        available(device)
        self.membership = Membership(group)
        self._barriers = 0
        self._watchdog = Watchdog(self.membership)  # NCCL's own wait asks `check`
        self.membership.waits = self.told_waits
        self._agreed: set[Signature] = set()
        try:
            self.membership.gather("ready", b"")
            self._nccl = NcclGroup(
                self.rank,
                self.size,
                device,
                self._share_id,
                self.membership.check,
                group.timeout_seconds,
                partners(topology, self.rank),
            )
        except D5Error as error:
            self._watchdog.close()
            self.membership.fail(error)  # whom the others wait for
            self.membership.leave()
            raise

    def mark(self) -> Any:
        return mark(self._nccl.device)

    def follow(self, mark: Any) -> None:
        follow(self._nccl.device, mark)

    def _native(self, array: Any) -> Any:
        return device_view(array)

    def _close(self) -> None:
        self._watchdog.close()
        self.membership.leave()
        self._nccl.close()

    def _allreduce(self, flat: Any, operation: str, call: Signature) -> None:
        with self._agreed_on(call):
            self._nccl.allreduce(flat, operation)
            self._ring(2 * flat.nbytes * (self.size - 1) // self.size, 2 * (self.size - 1))

    def _reduce_scatter(self, flat: Any, operation: str, call: Signature) -> None:
        with self._agreed_on(call):
            self._nccl.reduce_parts(flat, self.bounds(len(flat)), operation)
            self._ring(flat.nbytes * (self.size - 1) // self.size, self.size - 1)

    def _all_gather(self, flat: Any, call: Signature) -> None:
        with self._agreed_on(call):
            self._nccl.gather_parts(flat, self.bounds(len(flat)))
            self._ring(flat.nbytes * (self.size - 1) // self.size, self.size - 1)

    def _all_to_all(self, flat: Any, call: Signature) -> None:
        with self._agreed_on(call):
            buffer = self._buffers(flat, 1)[0]
            others = [(part, rank) for rank, part in enumerate(self.bounds(len(flat))) if rank != self.rank]
            self._nccl.exchange(
                flat,
                [(flat[part], rank) for part, rank in others],
                [(buffer[part], rank) for part, rank in others],
            )
            for part, _ in others:
                flat[part] = buffer[part]
            self._ring(flat.nbytes * (self.size - 1) // self.size, 1)

    def _broadcast(self, flat: Any, root: int, call: Signature) -> None:
        with self._agreed_on(call):
            self._nccl.broadcast(flat, root)
            self._moved(
                sent=flat.nbytes if self.rank == root else 0,
                received=0 if self.rank == root else flat.nbytes,
                messages=int(self.rank == root),
                rounds=1,
            )

    def _barrier(self, call: Signature) -> None:
        self._barriers += 1
        with self._watchdog.watching(call):
            self.membership.gather(f"barrier/{self._barriers}", b"")
        self._moved(sent=0, received=0, messages=1, rounds=1)

    def _exchange(self, outgoing: Pairs, incoming: Pairs, call: Signature, tag: int) -> None:
        pairs = [*outgoing, *incoming]
        if pairs and isinstance(pairs[0][0], np.ndarray):
            raise ConfigurationError("NCCL exchanges device arrays: bytes need communicator='socket'")
        if pairs:
            with self._watchdog.exchanging(call, tuple(dict.fromkeys(rank for _, rank in pairs))):
                self._nccl.exchange(pairs[0][0], outgoing, incoming)
        self._moved_pairs(outgoing, incoming, rounds=1)

    def _waits(self) -> list[PresentWait]:
        return self._watchdog.waits() + self.membership.own_waits()

    @contextmanager
    def _agreed_on(self, call: Signature) -> Iterator[None]:
        """The collective of the block; compared with the others' where it is called for the first time."""
        with self._watchdog.watching(call):
            if call not in self._agreed:
                self._watchdog.agree(self.group.timeout_seconds)
                self._agreed.add(call)
            yield

    def _share_id(self, identity: bytes | None) -> bytes:
        if identity is not None:
            self.membership.put("nccl", identity)
        return self.membership.take("nccl")

    def _ring(self, moved: int, messages: int) -> None:
        self._moved(sent=moved, received=moved, messages=messages, rounds=messages)


def partners(topology: Topology, rank: int) -> list[int]:
    """The members that this one exchanges with over the rounds of the topology; none where one has too many.

    Both ends of a connection must name each other, so that a member's partners depend on all others'.
    """
    own: set[int] = set()
    for member in range(topology.agents):
        found: set[int] = set()
        for round in range(topology.period):
            found.update(topology.out_neighbors(member, round), topology.in_neighbors(member, round))
        if len(found) > MOST_PARTNERS:
            return []
        own = found if member == rank else own
    return sorted(own)
