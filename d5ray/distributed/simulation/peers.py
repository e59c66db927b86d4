"""Windows and mailboxes of the simulated world"""

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import final

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.one_sided.peers import Array, PeerMessage, Peers, sorted_out
from d5ray.distributed.simulation.arrival_order import Key, Order
from d5ray.distributed.simulation.clock import VirtualClock, VirtualEvent
from d5ray.distributed.simulation.links import Wires
from d5ray.distributed.simulation.server import HEADER_BYTES
from d5ray.errors import PeerLost


class _Window:
    def __init__(self, x: Array) -> None:
        self.x = x
        self.taken: Key | None = None
        self.orders = 0
        self.waiting: dict[Key, VirtualEvent] = {}


class _Mailbox:
    def __init__(self) -> None:
        self.messages: deque[PeerMessage] = deque()
        self.came: dict[int, int] = defaultdict(int)
        self.news: VirtualEvent | None = None


@final
class Meadow:
    """All windows and mailboxes of a simulation."""

    def __init__(self, clock: VirtualClock, wires: Wires, order: Order) -> None:
        self.clock, self.wires, self.order = clock, wires, order
        self.windows: dict[int, _Window] = {}
        self.gone: set[int] = set()
        self.mailboxes: dict[int, _Mailbox] = defaultdict(_Mailbox)

    def take(self, rank: int, key: Key, seconds: float) -> int:
        """Wait for the window's lock; the order of this operation there."""
        window = self.windows[rank]
        turn = VirtualEvent(self.clock, f"the window of agent {rank}")
        window.waiting[key] = turn
        self._grant(rank)
        if not turn.wait(seconds):
            raise PeerLost(rank, f"its window was not free within {seconds:g} s")
        order = window.orders
        window.orders += 1
        return order

    def release(self, rank: int) -> None:
        """Set the window free."""
        self.windows[rank].taken = None
        self._grant(rank)

    def lose(self, rank: int) -> None:
        """Let an agent be gone: its locks are free, and messages to it come back."""
        self.gone.add(rank)
        for owner, window in self.windows.items():
            for key in [key for key in window.waiting if key[0] == rank]:
                del window.waiting[key]
            if window.taken is not None and window.taken[0] == rank:
                self.release(owner)
        for message in self.mailboxes.pop(rank, _Mailbox()).messages:
            self.deliver(rank, message)

    def admit(self, rank: int) -> None:
        """An agent has come that was not there."""
        self.gone.discard(rank)

    def deliver(self, to: int, message: PeerMessage) -> None:
        """Put a message that has arrived into its mailbox."""
        if to in self.gone:
            if message.source in self.gone:
                return
            to, message = message.source, replace(message, returned=True)
        mailbox = self.mailboxes[to]
        mailbox.messages.append(message)
        if not message.returned:
            mailbox.came[message.source] += 1
        if mailbox.news is not None:
            mailbox.news.set()

    def _grant(self, rank: int) -> None:
        window = self.windows[rank]
        if window.taken is None and (key := self.order.next(rank, window.waiting)) is not None:
            window.taken = key
            window.waiting.pop(key).set()


@final
class SimulatedPeers(Peers):
    """One agent's peers in the simulation: a message costs what `Wires` says, a lock nothing."""

    def __init__(self, meadow: Meadow, x: Array, communication: Communicator) -> None:
        super().__init__(communication, meadow.clock)
        self._meadow = meadow
        self._under_way = 0  # messages
        self._idle: VirtualEvent | None = None
        meadow.windows[self.rank] = _Window(x.copy())

    @property
    def window(self) -> Array:
        return self._meadow.windows[self.rank].x

    def drain(self) -> None:
        while self._under_way:
            self._idle = VirtualEvent(self._meadow.clock, "its messages to arrive")
            self._idle.wait()

    def close(self) -> None:
        pass  # windows stay, as those of real agents do that have ended their training

    def _average(self, peer: int, number: int) -> tuple[tuple[int, int], ...]:
        meadow, key = self._meadow, (self.rank, number)
        low, high = sorted((self.rank, peer))
        size = HEADER_BYTES + self.window.nbytes
        if self.rank == high:
            self._travel(high, low, HEADER_BYTES)
        if peer in meadow.gone:
            return ()
        first = meadow.take(low, key, self.timeout_seconds)
        self._travel(low, high, size)
        second = meadow.take(high, key, self.timeout_seconds)
        mine, theirs = meadow.windows[low], meadow.windows[high]
        average = (mine.x + theirs.x) * mine.x.dtype.type(0.5)
        theirs.x[...] = average
        meadow.release(high)
        self._travel(high, low, size)
        mine.x[...] = average
        meadow.release(low)
        if self.rank == high:
            self._travel(low, high, HEADER_BYTES)
        return ((low, first), (high, second))

    def _travel(self, source: int, target: int, size: int) -> None:
        clock = self._meadow.clock
        arrived = VirtualEvent(clock, f"a message from agent {source} to agent {target}")
        self._meadow.wires.send(clock, source, target, size, arrived.set)
        arrived.wait()

    def _take(self, number: int) -> int:
        return self._meadow.take(self.rank, (self.rank, number), self.timeout_seconds)

    def _release(self) -> None:
        self._meadow.release(self.rank)

    def _send(self, to: int, message: PeerMessage) -> None:
        meadow = self._meadow
        size = HEADER_BYTES + sum(array.nbytes for array in message.arrays)

        def arrive() -> None:
            meadow.deliver(to, message)
            self._under_way -= 1
            if self._idle is not None and not self._under_way:
                self._idle.set()

        self._under_way += 1
        meadow.wires.send(meadow.clock, self.rank, to, size, arrive)

    def _receive(
        self, number: int, wanted: Mapping[int, int], most: Mapping[int, int] | None
    ) -> list[PeerMessage]:
        meadow, mailbox = self._meadow, self._meadow.mailboxes[self.rank]
        found = meadow.order.messages(self.rank, number)

        def missing() -> bool:
            if found is None:
                return any(mailbox.came[source] < count for source, count in wanted.items())
            here = {(message.source, message.number) for message in mailbox.messages}
            return not here.issuperset(found)

        while missing():
            mailbox.news = VirtualEvent(meadow.clock, "messages")
            if not mailbox.news.wait(self.timeout_seconds):
                raise PeerLost(None, f"no message came within {self.timeout_seconds:g} s")
        if found is None:
            return sorted_out(mailbox.messages, most)
        by_key = {(message.source, message.number): message for message in mailbox.messages}
        messages = [by_key[key] for key in found]
        mailbox.messages = deque(message for key, message in by_key.items() if key not in set(found))
        return messages
