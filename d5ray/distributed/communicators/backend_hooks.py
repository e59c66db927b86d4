"""Backend: the methods by which a communicator moves arrays; sockets, shared memory and others fill them"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.shared_memory.reduce_kernels import ReduceKernels
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.waits import PresentWait
from d5ray.distributed.rpc.dtypes import numpy_dtype
from d5ray.distributed.scheduler import THREADS, Scheduler
from d5ray.distributed.topologies.topology import Topology
from d5ray.distributed.traffic import Traffic
from d5ray.errors import ConfigurationError
from d5ray.frameworks.host import host_view
from d5ray.training.arrays import library_of, zeros_like

Pairs = list[tuple[Any, int]]  # flat arrays, each with the rank that it goes to or comes from


class Backend(ABC):
    """The part of a `Communicator` that moves arrays, once they are checked and flattened.

    The methods are called by all members in the same order. They add what they move to `_moved`.
    """

    backend = ""
    averages = False  # whether the backend forms means itself, without a second pass over the array
    scheduler: Scheduler = THREADS  # by which its members wait

    def __init__(self, group: Group, topology: Topology) -> None:
        if not 0 <= group.rank < group.size:
            raise ConfigurationError(
                f"rank {group.rank} is not in a group of {group.size}: its ranks are 0 to {group.size - 1}"
            )
        if topology.agents != group.size:
            raise ConfigurationError(
                f"{topology} has {topology.agents} agents, the group {group.name!r} has {group.size} "
                f"members: take a topology of {group.size}"
            )
        self.group = group
        self.rank = group.rank
        self.size = group.size
        self.topology = topology
        self.traffic = Traffic()
        self._received: dict[tuple[Any, ...], list[Any]] = {}  # kept between calls
        self._kernels = ReduceKernels()

    def allocate(self, elements: int, dtype: str) -> np.ndarray[Any, Any]:
        """A flat array of zeros (elements,) in the memory that this backend exchanges fastest from.

        Called by all members in the same order.
        """
        return np.zeros(elements, dtype=numpy_dtype(dtype))

    def common(self, elements: int, dtype: str) -> np.ndarray[Any, Any]:
        """One flat array of zeros (elements,) that all members have in memory. Called by all members."""
        raise ConfigurationError(
            f"{self.backend} gives its members no memory in common: put them on one node, with "
            "communicator='shared_memory'"
        )

    def mark(self) -> Any:
        """The mark behind all that this thread has given a device; None where arrays lie in host memory."""
        return None

    def follow(self, mark: Any) -> None:
        """Use the group's device in this thread, and let what it is given from now on come after the mark."""
        del mark  # a processor has computed when a call returns

    # -- what a backend fills --------------------------------------------------------------------------

    @abstractmethod
    def _close(self) -> None: ...

    @abstractmethod
    def _allreduce(self, flat: Any, operation: str, call: Signature) -> None:
        """operation: sum, min or max; mean too where the backend `averages`."""

    @abstractmethod
    def _reduce_scatter(self, flat: Any, operation: str, call: Signature) -> None: ...

    @abstractmethod
    def _all_gather(self, flat: Any, call: Signature) -> None: ...

    @abstractmethod
    def _all_to_all(self, flat: Any, call: Signature) -> None: ...

    @abstractmethod
    def _broadcast(self, flat: Any, root: int, call: Signature) -> None: ...

    @abstractmethod
    def _barrier(self, call: Signature) -> None: ...

    @abstractmethod
    def _exchange(self, outgoing: Pairs, incoming: Pairs, call: Signature, tag: int) -> None:
        """Send to and receive from members (flat, rank), all at once. tag: 0, or a caller's plus one."""

    def _waits(self) -> list[PresentWait]:
        """The waits of this member for others as they last now; called from another thread."""
        return []

    def _combine(
        self,
        flat: Any,
        own: float | None,
        sources: Mapping[int, float],
        targets: Sequence[int],
        call: Signature,
    ) -> None:
        """flat ← own · flat + Σ weight · the source's flat, which goes to the targets as it was before.

        own: None: what the other weights leave of 1, so that bits that agree stay, see `ReduceKernels.mix`.
        """
        buffers = self._buffers(flat, len(sources))
        incoming = list(zip(buffers, sources, strict=True))
        self._exchange([(flat, target) for target in targets], incoming, call, tag=0)
        if own is None:
            self._mix(flat, {source: buffer for buffer, source in incoming}, sources)
            return
        if own != 1.0:
            flat *= own
        for buffer, source in incoming:
            if sources[source] != 1.0:
                buffer *= sources[source]
            flat += buffer

    def _mix(self, flat: Any, received: Mapping[int, Any], weights: Mapping[int, float]) -> None:
        """flat ← flat − Σ weight · (flat − received), in the order of the ranks."""
        ranks = sorted(received)
        if isinstance(flat, np.ndarray):
            self._kernels.mix(flat, [received[rank] for rank in ranks], [weights[rank] for rank in ranks])
            return
        apart = zeros_like(flat)
        for rank in ranks:
            buffer = received[rank]
            library_of(flat).subtract(flat, buffer, out=buffer)
            buffer *= weights[rank]
            apart += buffer
        flat -= apart

    def _native(self, array: Any) -> Any:
        """The flat array over the memory of a caller's array."""
        return host_view(array)

    def _moved(self, *, sent: int, received: int, messages: int, rounds: int) -> None:
        """A backend moved this: bytes, messages, and the latencies that followed one another."""
        traffic = self.traffic
        traffic.bytes_sent += sent
        traffic.bytes_received += received
        traffic.messages_sent += messages
        traffic.rounds += rounds

    def _moved_pairs(
        self, outgoing: Sequence[tuple[Any, int]], incoming: Sequence[tuple[Any, int]], rounds: int
    ) -> None:
        """A backend moved these arrays."""
        sent, received = (sum(int(flat.nbytes) for flat, _ in pairs) for pairs in (outgoing, incoming))
        self._moved(sent=sent, received=received, messages=len(outgoing), rounds=rounds)

    def _buffers(self, array: Any, count: int) -> list[Any]:
        """Arrays like this one to receive into, kept between calls."""
        key = (type(array), tuple(array.shape), str(array.dtype))
        buffers = self._received.setdefault(key, [])
        while len(buffers) < count:
            buffers.append(zeros_like(array))
        return buffers[:count]
