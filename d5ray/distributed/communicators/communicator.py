"""Communicator: the operations by which agents exchange arrays, in place, and the count of their traffic"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import OPERATIONS, Signature, signature_of
from d5ray.distributed.communicators.backend_hooks import Backend
from d5ray.distributed.communicators.background import Background
from d5ray.distributed.communicators.point_to_point.collectives import parts
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.waits import PresentWait
from d5ray.distributed.topologies.mixing import TOLERANCE
from d5ray.distributed.topologies.topology import Complete, Neighborhood, Topology, neighborhood
from d5ray.distributed.traffic import Traffic
from d5ray.errors import ConfigurationError
from d5ray.training.arrays import copy_of, is_finite, is_float16, is_floating, widened

MAX_TAG = 2**30
Message = np.ndarray[Any, np.dtype[np.uint8]]


class Communicator(Backend):
    """The members of a group exchange contiguous arrays of equal size and type, in place.

    Arrays are of NumPy or PyTorch (host memory), or of CuPy or PyTorch (a device), as the backend says.
    Every operation is called by all members in the same order, or by both ends of a pair. Every wait is
    bounded: `PeerLost` is raised if a member is gone or silent; members that call different operations get a
    `ConfigurationError` that names them. Traffic is counted only here. A backend implements the methods of
    `Backend`.

    If members divide an array among them, `bounds` gives the part of each.
    """

    def __init__(self, group: Group, topology: Topology) -> None:
        super().__init__(group, topology)
        self.round = 0  # of exchanges with neighbours; a time-varying topology goes by it
        self._neighborhoods: dict[int, Neighborhood] = {}  # by round
        self._subgroups: dict[tuple[int, ...], int] = {}  # how often each was formed
        self._background: Background[Communicator] | None = None
        self._within: list[Communicator] = []  # sub-groups
        self._whole: Communicator | None = None  # of which this is a sub-group or a part
        self._closed = False

    # -- collectives -----------------------------------------------------------------------------------

    @final
    def allreduce(self, array: Any, operation: str = "sum") -> None:
        """array ← operation over all members' arrays; operation is sum, mean, min or max."""
        flat = self._reducible(array, "allreduce", operation)
        with self._timed():
            kept = copy_of(flat) if operation == "mean" and not self.averages and is_float16(flat) else None
            self._allreduce(flat, self._own(operation), signature_of("allreduce", operation, flat))
            if operation == "mean" and not self.averages:
                flat /= self.size
            if kept is not None and not is_finite(flat):  # the sum may be too large where the mean is not
                wide = widened(kept)
                self._allreduce(wide, "sum", signature_of("allreduce", operation, wide))
                wide /= self.size
                flat[...] = wide

    @final
    def reduce_scatter(self, array: Any, operation: str = "sum") -> slice:
        """This member's part of the array ← operation over all members' arrays; the rest becomes undefined.

        Returns the part as a slice of the flat array, see `bounds`. `all_gather` completes it.
        """
        flat = self._reducible(array, "reduce_scatter", operation)
        own = self.bounds(len(flat))[self.rank]
        with self._timed():
            if operation == "mean" and not self.averages and is_float16(flat):
                wide = widened(flat)
                self._reduce_scatter(wide, "sum", signature_of("reduce_scatter", operation, wide))
                wide[own] /= self.size
                flat[own] = wide[own]
                return own
            self._reduce_scatter(flat, self._own(operation), signature_of("reduce_scatter", operation, flat))
            if operation == "mean" and not self.averages:
                flat[own] /= self.size
        return own

    @final
    def all_gather(self, array: Any) -> None:
        """array ← every member's own part of it, see `bounds`; the other parts need not be set before.

        An array (members, n) gathers one row per member.
        """
        flat = self._native(array)
        with self._timed():
            self._all_gather(flat, signature_of("all_gather", "", flat))

    @final
    def all_to_all(self, array: Any) -> None:
        """Part i of the array ← part `rank` of member i's array; there are `size` parts of equal size."""
        flat = self._native(array)
        if len(flat) % self.size:
            raise ConfigurationError(
                f"all_to_all needs an array of {self.size} equal parts, found {len(flat)} elements: take a "
                f"multiple of {self.size}"
            )
        with self._timed():
            self._all_to_all(flat, signature_of("all_to_all", "", flat))

    @final
    def broadcast(self, array: Any, root: int = 0) -> None:
        """array ← the root's array."""
        self._check_rank(root)
        flat = self._native(array)
        with self._timed():
            self._broadcast(flat, root, signature_of("broadcast", root, flat))

    @final
    def barrier(self) -> None:
        """Return when all members have called it."""
        with self._timed():
            self._barrier(signature_of("barrier", "", None))

    @final
    def bounds(self, elements: int) -> tuple[slice, ...]:
        """The parts of a flat array by rank: in order, of sizes that differ by one at most.

        Part i is elements · i // size up to elements · (i + 1) // size.
        """
        return tuple(parts(elements, self.size))

    # -- neighbours ------------------------------------------------------------------------------------

    @final
    def neighbor_average(self, *arrays: Any) -> None:
        """x_i ← Σ_j W_ij x_j with the topology's weights W of this round, for each of the arrays.

        Each call is one round of a time-varying topology, whatever the number of arrays. Where the weights
        add up to 1, it is computed as x_i − Σ_j W_ij (x_i − x_j): bits that agree stay.
        """
        for array in arrays:
            self._check_floating(array, "neighbor_average")
        now = self._neighborhood()
        rest = abs(now.own + sum(now.sources.values()) - 1.0) < TOLERANCE
        self._combine_all(arrays, None if rest else now.own, now.sources, now.targets, "neighbors")
        self.round += 1

    @final
    def push_sum(self, array: Any, mass: Any) -> None:
        """z_i ← Σ_j P_ij w_j z_j / w_i⁺,  w_i⁺ = Σ_j P_ij w_j; array is z, mass is w (1,); P as in weights.

        One round of the topology. The weights of z's mean add up to 1: its bits that agree stay.
        """
        for each in (array, mass):
            self._check_floating(each, "push_sum")
        now, flat = self._neighborhood(), self._native(mass)
        buffers = dict(zip(now.sources, self._buffers(flat, len(now.sources)), strict=True))
        with self._timed():
            incoming = [(buffer, source) for source, buffer in buffers.items()]
            call = signature_of("neighbors", "mass", flat)
            self._exchange([(flat, target) for target in now.targets], incoming, call, tag=0)
        shares = {source: now.sources[source] * float(buffer[0]) for source, buffer in buffers.items()}
        total = now.own * float(flat[0]) + sum(shares.values())
        weights = {source: share / total for source, share in shares.items()}
        self._combine_all([array], None, weights, now.targets, "neighbors")
        flat[...] = total
        self.round += 1

    @final
    def reduce_from_neighbors(self, array: Any) -> None:
        """array ← the plain sum of the arrays of this member and those that send to it at this round."""
        now = self._neighborhood()
        self._combine_all([array], 1.0, dict.fromkeys(now.sources, 1.0), now.targets, "neighbors")
        self.round += 1

    @final
    def neighbor_exchange(self, array: Any) -> dict[int, Any]:
        """Send the array to the neighbours of this round; the arrays from sources, by rank.

        The returned arrays are overwritten by the next call with an array of the same shape and type.
        """
        now = self._neighborhood()
        flat = self._native(array)
        received = dict(zip(now.sources, self._buffers(array, len(now.sources)), strict=True))
        with self._timed():
            self._exchange(
                [(flat, target) for target in now.targets],
                [(self._native(buffer), source) for source, buffer in received.items()],
                signature_of("neighbors", "", flat),
                tag=0,
            )
        self.round += 1
        return received

    @final
    def pair_average(self, array: Any, peer: int) -> None:
        """array ← ½ (array + the peer's array), on both; the peer calls it with this member."""
        self._check_floating(array, "pair_average")
        self._check_pair(peer, 0)
        self._combine_all([array], 0.5, {peer: 0.5}, (peer,), "exchange")

    @final
    @property
    def weights(self) -> dict[int, float]:
        """This member's row of W at this round by rank: its own weight, then those of its sources."""
        now = self._neighborhood()
        return {self.rank: now.own, **now.sources}

    # -- pairs and messages ----------------------------------------------------------------------------

    @final
    def send(self, array: Any, to: int, tag: int = 0) -> None:
        """Send the array to one other member; may return only when that has received it."""
        self._check_pair(to, tag)
        flat = self._native(array)
        with self._timed():
            self._exchange([(flat, to)], [], signature_of("send", tag, flat), tag + 1)

    @final
    def recv(self, array: Any, source: int, tag: int = 0) -> None:
        """array ← what `source`, another member, sent with this tag."""
        self._check_pair(source, tag)
        flat = self._native(array)
        with self._timed():
            self._exchange([], [(flat, source)], signature_of("recv", tag, flat), tag + 1)

    @final
    def exchange_messages(
        self,
        outgoing: Mapping[int, Message],
        sources: Iterable[int],
        length: int | Mapping[int, int] | None = None,
    ) -> dict[int, Message]:
        """Send bytes (n,) uint8 to members by rank, receive from `sources`, all at once.

        Lengths may differ, and are sent first as 8 bytes each, unless all know them: `length` is that of
        every message, or, by rank, that of the message from there.
        """
        senders = tuple(sources)
        for rank in (*outgoing, *senders):
            self._check_pair(rank, 0)
        with self._timed():
            if length is None:
                sizes = self._swap({r: np.array([m.size]) for r, m in outgoing.items()}, senders, 1, "int64")
                length = {rank: int(size[0]) for rank, size in sizes.items()}
            return self._swap(outgoing, senders, length, "uint8")

    @final
    def all_gather_messages(
        self, message: Message, length: int | Mapping[int, int] | None = None
    ) -> list[Message]:
        """Every member's bytes, by rank. length: as in `exchange_messages`."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        received = self.exchange_messages(dict.fromkeys(others, message), others, length)
        return [message if rank == self.rank else received[rank] for rank in range(self.size)]

    @final
    def neighbor_messages(self, message: Message, length: int | None = None) -> dict[int, Message]:
        """Send bytes to the neighbours of this round; returns those received, by rank."""
        now = self._neighborhood()
        received = self.exchange_messages(dict.fromkeys(now.targets, message), now.sources, length)
        self.round += 1
        return received

    # -- groups and handles ----------------------------------------------------------------------------

    @final
    def subgroup(self, ranks: Sequence[int], topology: Topology | None = None) -> "Communicator":
        """The group of some members, in the order given: ranks[0] is its rank 0. Those members call it.

        Its traffic is included in this communicator's. topology: by default complete.
        """
        members = tuple(ranks)
        for rank in members:
            self._check_rank(rank)
        if len(set(members)) != len(members) or self.rank not in members:
            raise ConfigurationError(
                f"a sub-group of the ranks {list(members)} cannot be formed by rank {self.rank}: name every "
                "member once, and let the members alone form it"
            )
        count = self._subgroups[members] = self._subgroups.get(members, 0) + 1
        made = self._join_again(
            f"{self.group.name}/{','.join(map(str, members))}#{count}",
            members,
            topology or Complete(len(members)),
        )
        made.traffic = self.traffic
        self._within.append(made)
        return made

    @final
    @property
    def start(self) -> "Background[Communicator]":
        """The communicator's operations in the background: `handle = self.communication.start.allreduce(x)`.

        The caller computes on and then calls `handle.wait()`.

        They run one after the other, in the order in which they were started, concurrently with operations
        called meanwhile; every member starts the same ones in the same order.
        """
        if self._background is None:
            everyone = tuple(range(self.size))
            clone = self._join_again(f"{self.group.name}/background", everyone, self.topology)
            self._background = Background(clone, self.traffic, self.group.timeout_seconds)
        return self._background

    @final
    def in_background(self) -> "Background[Communicator]":
        """A background for a group without operations in the foreground: it needs no clone."""
        if self._background is None:
            waiting, self.traffic = self.traffic, Traffic()
            self._background = Background(self, waiting, self.group.timeout_seconds)
        return self._background

    @final
    def waits(self) -> list[PresentWait]:
        """The current waits of this member for others; called from another thread."""
        background = self._background
        alone = background is not None and background.communicator is self
        found = self._waits() if not alone or (background and background.awaited) else []
        for part in self._within:
            found += part.waits()
        if background is not None and background.awaited and not alone:
            found += background.communicator.waits()
        return found

    @final
    def told_waits(self) -> list[PresentWait]:
        """The waits of this member in all that belongs together, for the others of the group."""
        return (self._whole or self).waits()

    @final
    def close(self) -> None:
        """Leave the group and its sub-groups: members that wait for this one get `PeerLost` at once."""
        for background in self.leave():
            background.join()

    @final
    def leave(self) -> "list[Background[Communicator]]":
        """Leave the group without waiting for the background threads, which are returned."""
        if self._closed:
            return []
        self._closed = True
        left = [] if self._background is None else [self._background]
        for background in left:
            background.leave()
        for part in self._within:
            left += part.leave()
        self._close()
        self._whole = None  # no circle, which would keep shared memory until somebody looks for garbage
        return left

    # --------------------------------------------------------------------------------------------------

    def _join(self, group: Group, topology: Topology) -> "Communicator":
        """Another communicator of this backend."""
        return type(self)(group, topology)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begin = self.scheduler.now()
        try:
            yield
        finally:
            self.traffic.nanoseconds += self.scheduler.now() - begin
            self.traffic.operations += 1

    def _combine_all(
        self,
        arrays: Iterable[Any],
        own: float | None,
        sources: Mapping[int, float],
        targets: Sequence[int],
        operation: str,
    ) -> None:
        for array in arrays:
            flat = self._native(array)
            with self._timed():
                self._combine(flat, own, sources, targets, signature_of(operation, "", flat))

    def _swap(
        self, outgoing: Mapping[int, Any], sources: Sequence[int], lengths: Any, dtype: str
    ) -> dict[int, Any]:
        """Exchange host arrays whose lengths are known, by rank or for all."""
        received = {
            source: np.empty(lengths if isinstance(lengths, int) else lengths[source], dtype=dtype)
            for source in sources
        }
        self._exchange(
            [(np.ascontiguousarray(array), rank) for rank, array in outgoing.items()],
            [(array, rank) for rank, array in received.items()],
            Signature("messages", "", dtype, -1),
            tag=0,
        )
        return received

    def _join_again(self, name: str, members: tuple[int, ...], topology: Topology) -> "Communicator":
        made = self._join(self.group.among(members, name), topology)
        made._whole = self._whole or self
        return made

    def _neighborhood(self) -> Neighborhood:
        """The neighbours at this round, with their weights; looked up once a round of the period."""
        round = self.round % self.topology.period
        if round not in self._neighborhoods:
            self._neighborhoods[round] = neighborhood(self.topology, self.rank, round)
        return self._neighborhoods[round]

    def _reducible(self, array: Any, what: str, operation: str) -> Any:
        if operation not in OPERATIONS:
            raise ConfigurationError(f"{what} cannot {operation!r}: choose one of {', '.join(OPERATIONS)}")
        if operation == "mean":
            self._check_floating(array, f"{what} 'mean'")
        return self._native(array)

    def _own(self, operation: str) -> str:
        """The operation that the backend is asked for: a mean is a sum first, unless it averages."""
        return "sum" if operation == "mean" and not self.averages else operation

    def _check_floating(self, array: Any, operation: str) -> None:
        if hasattr(array, "dtype") and not is_floating(array):
            raise ConfigurationError(
                f"{operation} divides, but the array is of {array.dtype}: exchange an array of a floating "
                "type"
            )

    def _check_rank(self, rank: int) -> None:
        if not hasattr(rank, "__index__") or rank not in range(self.size):
            raise ConfigurationError(
                f"rank {rank!r} is not in this group: its ranks are 0 to {self.size - 1}"
            )

    def _check_pair(self, other: int, tag: int) -> None:
        self._check_rank(other)
        if other == self.rank:
            raise ConfigurationError(f"rank {other} is this member itself: name another one")
        if not hasattr(tag, "__index__") or tag not in range(MAX_TAG):
            raise ConfigurationError(f"the tag is {tag!r}: it must be an integer from 0 to {MAX_TAG - 1}")
