"""One-sided communication with other agents: `self.peers` of an asynchronous distributed optimizer"""

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.waits import PresentWait
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.scheduler import Scheduler
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError
from d5ray.frameworks.host import host_view
from d5ray.names.renamed import RenamedAttribute

Array = np.ndarray[Any, Any]
NOBODY: Mapping[int, int] = {}
MOST_ARRAYS = 16  # in a message
MESSAGE_BYTES = 2**28  # that all of them may have, however small the window is


@dataclass(frozen=True, eq=False)
class PeerMessage:
    """A one-sided message of an agent; number counts the messages of its source to this agent, from 1.

    returned: this agent sent it itself, to an agent that is gone; it was not delivered.
    """

    source: int
    number: int
    arrays: tuple[Array, ...]
    returned: bool = False


class PeerOperation(NamedTuple):
    """One operation, as it is kept for the schedule. places: in which window, the how-many-th there."""

    kind: str  # average, held, read, collect, post: as in the events of every run
    number: int  # of this agent's operations, from 0
    places: tuple[tuple[int, int], ...] = ()
    messages: tuple[tuple[int, int], ...] = ()  # source and number of each received; receiver, of one sent
    seconds: float = 0.0
    ended: int = 0  # ns of the scheduler's clock

    @property
    def detail(self) -> dict[str, Any]:
        """The operation's facts for the events table."""
        return {"number": self.number, "places": self.places, "letters": self.messages}


class Peers(ABC):
    """Every agent has a window, an array (n,) that others can access while it computes, and a mailbox.

    No operation waits for another agent's step: a window is changed under its lock, which is held for at most
    the time of a message, and a message waits until its receiver takes it out.
    """

    def __init__(self, communication: Communicator, scheduler: Scheduler) -> None:
        self.rank, self.topology = communication.rank, communication.topology
        self.scheduler, self.traffic = scheduler, communication.traffic
        self.timeout_seconds = communication.group.timeout_seconds
        self.operations: deque[PeerOperation] = deque()  # whoever records them takes them out
        self.gone: set[int] = set()  # agents that ended before their time, or have not come yet
        self.complete = True  # whether all agents were there all the time
        self.links: dict[int, list[int]] = defaultdict(lambda: [0, 0])  # bytes to and from each agent
        self._number = 0
        self._sent: dict[int, int] = defaultdict(int)  # messages to each agent

    @property
    @abstractmethod
    def window(self) -> Array:
        """This agent's window (n,): read and write it only in `held`."""

    @final
    @property
    def most_bytes(self) -> int:
        """The maximal bytes of a message: `MOST_ARRAYS` windows in twice as many bits, or 256 MiB."""
        return max(2 * MOST_ARRAYS * self.window.nbytes, MESSAGE_BYTES)

    # -- windows ---------------------------------------------------------------------------------------

    @final
    def average(self, peer: int) -> None:
        """Average both windows atomically, ½ (own + the peer's): nobody reads or changes either in between.

        Concurrent averages cannot deadlock: of two windows the one with the lower rank is locked first. If
        the peer is gone, nothing happens.
        """
        self._check(peer)
        if peer in self.gone:
            return
        with self._timed() as (begin, number):
            places = self._average(peer, number)
        if places:
            self._count(peer, self.window.nbytes, self.window.nbytes, 2)
            self._done("average", number, begin, places=places)

    @final
    @contextmanager
    def held(self, x: Any) -> Iterator[None]:
        """x (n,) ← the window; after the block the window ← x. No other agent has access meanwhile."""
        flat = host_view(x)
        with self._timed() as (begin, number):
            order = self._take(number)
        try:
            flat[...] = self.window
            yield
            self.window[...] = flat
        finally:
            self._release()
        self._done("held", number, begin, places=((self.rank, order),))

    @final
    def read(self, into: Any) -> None:
        """into (n,) ← the window."""
        flat = host_view(into)
        with self._timed() as (begin, number):
            order = self._take(number)
            flat[...] = self.window
            self._release()
        self._done("read", number, begin, places=((self.rank, order),))

    # -- messages --------------------------------------------------------------------------------------

    @final
    def send(self, to: int, *arrays: Any) -> None:
        """Send arrays to an agent's mailbox without blocking; they may be changed afterwards."""
        self._check(to)
        if not 0 < len(arrays) <= MOST_ARRAYS:
            raise ConfigurationError(f"a message has {len(arrays)} arrays: give 1 to {MOST_ARRAYS}")
        flat = tuple(host_view(array) for array in arrays)
        if (size := sum(array.nbytes for array in flat)) > self.most_bytes:
            raise ConfigurationError(
                f"a message has {size:,} bytes: receivers take at most {self.most_bytes:,}, for a window of "
                f"{self.window.nbytes:,}"
            )
        self._sent[to] += 1
        message = PeerMessage(self.rank, self._sent[to], tuple(array.copy() for array in flat))
        with self._timed() as (begin, number):
            self._send(to, message)
        self._count(to, sum(array.nbytes for array in flat), 0, 1)
        self._done("post", number, begin, messages=((to, message.number),))

    @final
    def receive(
        self, wait_for: Mapping[int, int] = NOBODY, most: Mapping[int, int] | None = None
    ) -> list[PeerMessage]:
        """The messages that have arrived since the last call, in the order of their arrival.

        wait_for: the total number of messages, by rank of some agents, to wait for. most: the maximal total
        number to return, of each agent; later ones stay for the next call.
        """
        with self._timed() as (begin, number):
            wanted = {source: count for source, count in wait_for.items() if source not in self.gone}
            messages = self._receive(number, wanted, most)
        for message in messages:
            received = sum(array.nbytes for array in message.arrays)
            self.traffic.bytes_received += received
            self.links[message.source][1] += received
        self._done(
            "collect", number, begin, messages=tuple((message.source, message.number) for message in messages)
        )
        return messages

    post, collect = RenamedAttribute("send"), RenamedAttribute("receive")

    # -- neighbours ------------------------------------------------------------------------------------

    @final
    def neighbors(self, round: int = 0) -> tuple[int, ...]:
        """The agents to which this one sends at this round; the neighbours of a lost one replace it."""
        return reachable(self.topology, self.rank, round, self.gone)

    # -- what a world fills ----------------------------------------------------------------------------

    @abstractmethod
    def _average(self, peer: int, number: int) -> tuple[tuple[int, int], ...]:
        """Average with the peer; (rank, order) in both windows, nothing if the peer turned out to be gone."""

    @abstractmethod
    def _take(self, number: int) -> int:
        """Take the own window's lock; the order of this operation there."""

    @abstractmethod
    def _release(self) -> None:
        """Give the lock back."""

    @abstractmethod
    def _send(self, to: int, message: PeerMessage) -> None: ...

    @abstractmethod
    def _receive(
        self, number: int, wanted: Mapping[int, int], most: Mapping[int, int] | None
    ) -> list[PeerMessage]: ...

    def waits(self) -> list[PresentWait]:
        """The current waits of this agent for others; called from another thread."""
        return []

    def lose(self, rank: int) -> None:
        """Note that an agent is gone: nobody waits for it, or sends to it."""
        self.gone.add(rank)
        self.complete = False

    def admit(self, rank: int, address: Address | None = None) -> None:
        """Note that an agent is back, or has joined; on real machines at this address."""
        self.gone.discard(rank)

    @abstractmethod
    def drain(self) -> None:
        """Return when the sent messages have been delivered or returned."""

    @abstractmethod
    def close(self) -> None:
        """Stop serving the others."""

    # --------------------------------------------------------------------------------------------------

    @contextmanager
    def _timed(self) -> Iterator[tuple[int, int]]:
        begin, number = self.scheduler.now(), self._number
        self._number += 1
        try:
            yield begin, number
        finally:
            self.traffic.nanoseconds += self.scheduler.now() - begin
            self.traffic.operations += 1

    def _done(
        self,
        kind: str,
        number: int,
        begin: int,
        places: tuple[tuple[int, int], ...] = (),
        messages: tuple[tuple[int, int], ...] = (),
    ) -> None:
        ended = self.scheduler.now()
        seconds = (ended - begin) * 1e-9
        self.operations.append(PeerOperation(kind, number, places, messages, seconds, ended))

    def _count(self, peer: int, sent: int, received: int, rounds: int) -> None:
        self.links[peer][0] += sent
        self.links[peer][1] += received
        self.traffic.bytes_sent += sent
        self.traffic.bytes_received += received
        self.traffic.messages_sent += 1
        self.traffic.rounds += rounds

    def _check(self, peer: int) -> None:
        if peer == self.rank or peer not in range(self.topology.agents):
            raise ConfigurationError(
                f"rank {peer!r} is none of the other agents of {self.rank}: the ranks are 0 to "
                f"{self.topology.agents - 1}"
            )


def reachable(topology: Topology, rank: int, round: int, gone: Collection[int]) -> tuple[int, ...]:
    """Out-neighbours at a round, ascending; one that is gone is replaced by its own, so that a connected
    graph stays connected."""
    found: set[int] = set()
    passed: set[int] = set()
    ahead = list(topology.out_neighbors(rank, round))
    while ahead:
        other = ahead.pop()
        if other not in gone:
            found.add(other)
        elif other not in passed:
            passed.add(other)
            ahead += topology.out_neighbors(other, round)
    return tuple(sorted(found - {rank}))


def sorted_out(messages: deque[PeerMessage], most: Mapping[int, int] | None) -> list[PeerMessage]:
    """Take out the messages that are wanted; the others stay."""
    taken = [
        message
        for message in messages
        if most is None or message.returned or message.number <= most.get(message.source, 0)
    ]
    for message in taken:
        messages.remove(message)
    return taken
