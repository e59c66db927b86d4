"""The communicator of the simulated world: members are tasks on a virtual clock, and messages cost time"""

import copy
import math
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import Signature, disagreement
from d5ray.distributed.communicators.backend_hooks import Pairs
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.shared_memory.reduce_kernels import ReduceKernels
from d5ray.distributed.group.group import Group
from d5ray.distributed.scheduler import Signal
from d5ray.distributed.simulation.clock import VirtualClock, VirtualEvent
from d5ray.distributed.simulation.links import Wires
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import D5Error, PeerLost

Array = np.ndarray[Any, Any]
_Message = tuple[VirtualEvent, Signature, Array]  # set when it has arrived


class _Collective:
    """One collective: who has come, with what."""

    def __init__(self, clock: VirtualClock, what: str) -> None:
        self.given: dict[int, tuple[Signature, Array]] = {}
        self.combined = False
        self.ends = 0.0  # when the operation has taken its time
        self.over = VirtualEvent(clock, what)


class _Table:
    """The state that the members of one group have in common."""

    def __init__(self) -> None:
        self.collectives: dict[int, _Collective] = {}
        self.messages: dict[tuple[int, int, int], deque[_Message]] = defaultdict(deque)  # from, to, tag
        self.news: dict[int, VirtualEvent] = {}  # by member, while it waits for messages
        self.commons: dict[int, Array] = {}
        self.failure: D5Error | None = None


class SimulatedNetwork:
    """The groups of one simulation: where their members meet, and the wires between the agents."""

    def __init__(self, clock: VirtualClock, wires: Wires) -> None:
        self.clock = clock
        self.wires = wires
        self.kernels = ReduceKernels()
        self.tables: dict[str, _Table] = defaultdict(_Table)

    def join(self, group: Group, topology: Topology, nodes: Sequence[int]) -> "SimulatedCommunicator":
        """This member's communicator. nodes: where its members are, by rank."""
        return SimulatedCommunicator(group, topology, self, nodes)

    def forget(self) -> None:
        """Let go of all groups that were formed so far, which nobody joins any more."""
        self.tables.clear()


@final
class SimulatedCommunicator(Communicator):
    """Sums in the order of the ranks, weighted ones too: the bits that shared memory gives.

    What a collective costs, with P members and n bytes:

    - allreduce, barrier: recursive doubling, (α + βn) log₂ P, or halving and doubling (Rabenseifner),
      2α log₂ P + 2βn (P−1)/P, whichever is less
    - reduce_scatter, all_gather: half of the latter; all_to_all: (P−1) α + βn (P−1)/P
    - broadcast: (α + βn) log₂ P

    α and β are those of the slowest link among them; it ends for all at once, when that has passed since
    the last one came. (Thakur, Rabenseifner, Gropp, doi 10.1177/1094342005051521.) Messages to neighbours
    and pairs go over `Wires`, one by one, to the next rank first: where all have k neighbours at the same
    distances, each has all of them after α + kβn.
    """

    backend = "simulated"
    averages = True

    def __init__(
        self, group: Group, topology: Topology, network: SimulatedNetwork, nodes: Sequence[int]
    ) -> None:
        super().__init__(group, topology)
        self.scheduler = network.clock
        self._clock = network.clock
        self._network = network
        self._kernels = network.kernels
        self._nodes = tuple(nodes)
        self._table = network.tables[group.label]
        self._alpha, self._beta = network.wires.links.slowest(self._nodes)
        self._number = 0  # of this member's next collective
        self._commons = 0  # arrays in common

    def _join(self, group: Group, topology: Topology) -> "SimulatedCommunicator":
        raise AssertionError("sub-groups need their members' nodes")

    def _join_again(self, name: str, members: tuple[int, ...], topology: Topology) -> "SimulatedCommunicator":
        group = Group(
            name, self.group.epoch, members.index(self.rank), len(members),
            timeout_seconds=self.group.timeout_seconds,
        )  # fmt: skip
        return SimulatedCommunicator(group, topology, self._network, [self._nodes[rank] for rank in members])

    def common(self, elements: int, dtype: str) -> Array:
        """One array for all members of this simulated node."""
        self._commons += 1
        table = self._table.commons
        if self._commons not in table:
            table[self._commons] = self.allocate(elements, dtype)
        return table[self._commons]

    def _close(self) -> None:
        self._fail(PeerLost(self.rank, "it left the group"))

    # -- collectives -----------------------------------------------------------------------------------

    def _allreduce(self, flat: Array, operation: str, call: Signature) -> None:
        size, payload = self.size, flat.nbytes
        rounds = _log2(size)
        doubling = rounds * (self._alpha + self._beta * payload)
        halving = 2 * rounds * self._alpha + 2 * self._beta * _share(payload, size)

        def reduce(arrays: Sequence[Array]) -> None:
            total = self._total(arrays, operation)
            for array in arrays:
                array[...] = total

        self._synchronize(flat, call, min(doubling, halving), reduce)
        if doubling <= halving:
            self._moved(sent=rounds * payload, received=rounds * payload, messages=rounds, rounds=rounds)
        else:
            moved = 2 * round(_share(payload, size))
            self._moved(sent=moved, received=moved, messages=2 * rounds, rounds=2 * rounds)

    def _reduce_scatter(self, flat: Array, operation: str, call: Signature) -> None:
        def reduce(arrays: Sequence[Array]) -> None:
            total = self._total(arrays, operation)
            for array, own in zip(arrays, self.bounds(flat.size), strict=True):
                array[own] = total[own]

        self._halve(flat, call, reduce)

    def _all_gather(self, flat: Array, call: Signature) -> None:
        def gather(arrays: Sequence[Array]) -> None:
            whole = np.empty_like(flat)
            for array, own in zip(arrays, self.bounds(flat.size), strict=True):
                whole[own] = array[own]
            for array in arrays:
                array[...] = whole

        self._halve(flat, call, gather)

    def _all_to_all(self, flat: Array, call: Signature) -> None:
        def transpose(arrays: Sequence[Array]) -> None:
            everyone = np.stack(arrays).reshape(self.size, self.size, -1)  # (from, to, part)
            for rank, array in enumerate(arrays):
                array[...] = everyone[:, rank].reshape(-1)

        moved = _share(flat.nbytes, self.size)
        self._synchronize(flat, call, (self.size - 1) * self._alpha + self._beta * moved, transpose)
        self._moved(sent=round(moved), received=round(moved), messages=self.size - 1, rounds=self.size - 1)

    def _broadcast(self, flat: Array, root: int, call: Signature) -> None:
        def spread(arrays: Sequence[Array]) -> None:
            for rank, array in enumerate(arrays):
                if rank != root:
                    array[...] = arrays[root]

        rounds = _log2(self.size)
        self._synchronize(flat, call, rounds * (self._alpha + self._beta * flat.nbytes), spread)
        root_sends = (self.size - 1) * flat.nbytes if self.rank == root else 0
        received = 0 if self.rank == root else flat.nbytes
        self._moved(sent=root_sends, received=received, messages=int(self.rank == root), rounds=rounds)

    def _barrier(self, call: Signature) -> None:
        rounds = _log2(self.size)
        self._synchronize(np.empty(0), call, rounds * self._alpha, lambda arrays: None)
        self._moved(sent=0, received=0, messages=rounds, rounds=rounds)

    def _total(self, arrays: Sequence[Array], operation: str) -> Array:
        """The reduction of all, in the order of the ranks, as `SharedMemory` has it."""
        if len(arrays) == 1:
            return arrays[0].copy()
        total = np.empty_like(arrays[0])
        self._kernels.reduce(arrays, total, operation)
        return total

    def _halve(self, flat: Array, call: Signature, combine: Callable[[Sequence[Array]], None]) -> None:
        rounds, moved = _log2(self.size), _share(flat.nbytes, self.size)
        self._synchronize(flat, call, rounds * self._alpha + self._beta * moved, combine)
        self._moved(sent=round(moved), received=round(moved), messages=rounds, rounds=rounds)

    def _synchronize(
        self, flat: Array, call: Signature, seconds: float, combine: Callable[[Sequence[Array]], None]
    ) -> None:
        """Return when all have come and the operation has taken its time; the last one combines."""
        table, number = self._table, self._number
        self._number += 1
        self._check()
        collective = table.collectives.get(number)
        if collective is None:
            collective = table.collectives[number] = _Collective(self._clock, str(call.operation))
        collective.given[self.rank] = (call, flat)
        if len(collective.given) == self.size:
            del table.collectives[number]
            calls = {rank: theirs for rank, (theirs, _) in collective.given.items()}
            if len(set(calls.values())) > 1:
                self._fail(disagreement(calls))
            else:
                combine([collective.given[rank][1] for rank in range(self.size)])
                collective.combined = True
            now, disturbed = self._clock.seconds, self._network.wires.disturbed
            collective.ends = now + seconds
            if disturbed is not None:
                collective.ends = disturbed.ends(self._nodes, now, seconds, _log2(self.size))
            collective.over.set()
        self._await(collective.over, call.operation)
        if not collective.combined:
            self._check()
        left, bound = collective.ends - self._clock.seconds, self.group.timeout_seconds
        if left > bound + seconds:
            self._clock.sleep(bound)
            self._fail(PeerLost(None, f"nobody answered {call.operation} within {bound:g} s"))
            self._check()
        self._clock.sleep(left)

    # -- messages --------------------------------------------------------------------------------------

    def _exchange(self, outgoing: Pairs, incoming: Pairs, call: Signature, tag: int) -> None:
        table, clock = self._table, self._clock
        self._check()
        for flat, to in sorted(outgoing, key=lambda pair: (pair[1] - self.rank) % self.size):
            arrived = VirtualEvent(clock, f"{call.operation} from rank {self.rank}")
            table.messages[self.rank, to, tag].append((arrived, call, flat.copy()))
            here, there = self._nodes[self.rank], self._nodes[to]
            self._network.wires.send(clock, here, there, flat.nbytes, arrived.set)
            if to in table.news:
                table.news[to].set()
        for flat, source in incoming:
            box = table.messages[source, self.rank, tag]
            while not box:
                self._check()
                news = table.news[self.rank] = VirtualEvent(clock, f"{call.operation} from rank {source}")
                self._await(news, call.operation)
            arrived, theirs, message = box.popleft()
            if theirs.pack() != call.pack():
                self._fail(disagreement({self.rank: call, source: theirs}))
                self._check()
            flat[...] = message
            self._await(arrived, call.operation)
        self._moved_pairs(outgoing, incoming, rounds=1)

    def _combine(
        self,
        flat: Array,
        own: float | None,
        sources: Mapping[int, float],
        targets: Sequence[int],
        call: Signature,
    ) -> None:
        received = dict(zip(sources, self._buffers(flat, len(sources)), strict=True))
        incoming = [(buffer, source) for source, buffer in received.items()]
        self._exchange([(flat, target) for target in targets], incoming, call, tag=0)
        if own is None:
            self._mix(flat, received, sources)
            return
        weights = dict(sorted({**sources, self.rank: own}.items()))
        arrays = [received.get(rank, flat) for rank in weights]
        self._kernels.reduce(arrays, flat, weights=list(weights.values()))

    # -- waiting ---------------------------------------------------------------------------------------

    def _await(self, event: Signal, what: str) -> None:
        seconds = self.group.timeout_seconds
        if not event.wait(seconds):
            self._fail(PeerLost(None, f"nobody answered {what} within {seconds:g} s"))
            self._check()

    def _check(self) -> None:
        if self._table.failure is not None:
            raise copy.copy(self._table.failure)  # a traceback of the one that is kept would keep its agents

    def _fail(self, error: D5Error) -> None:
        """Everyone who waits in this group raises this."""
        table = self._table
        table.failure = table.failure or error
        for collective in table.collectives.values():
            collective.over.set()
        for news in list(table.news.values()):
            news.set()


def _log2(size: int) -> int:
    return math.ceil(math.log2(size)) if size > 1 else 0


def _share(payload_bytes: float, size: int) -> float:
    """n (P−1)/P."""
    return payload_bytes * (size - 1) / size
