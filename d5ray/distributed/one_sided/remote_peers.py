"""Windows and mailboxes of real agents: every agent serves its neighbours in threads while it computes"""

import contextlib
import json
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any, Final, final

import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.waits import PresentWait
from d5ray.distributed.one_sided.peers import MOST_ARRAYS, Array, PeerMessage, Peers, sorted_out
from d5ray.distributed.rpc import frames
from d5ray.distributed.rpc.connection import LEAVE_SECONDS, Channel
from d5ray.distributed.rpc.dtypes import plain_dtype
from d5ray.distributed.rpc.frames import FrameHeader, Unexpected
from d5ray.distributed.rpc.service import Address, Caller, Connection, Service
from d5ray.distributed.rpc.shared_region import SharedRegion
from d5ray.distributed.scheduler import THREADS
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import PeerLost

AVERAGE, AVERAGE_FOR_ME, POST = 30, 31, 32  # kinds of requests
DONE, FAILED = 40, 41
NOTHING = -1  # no place in shared memory
PURPOSE = "gossip"
DESCRIPTION_BYTES = 4096  # of a message's arrays, at most
MESSAGES_OF_ONE = 2**16  # that were not received, of one agent, which then has to wait
BYTES_OF_ONE = 2**30  # of such messages, and 64 windows more
OUTBOX_MESSAGES: Final = 64  # that may be on their way to one agent before `put` waits


@final
class RemotePeers(Peers):
    """One agent's window and mailbox, which it serves, and its connections to the others'.

    Of two agents on one node the one of higher rank averages both windows where they lie; else the window
    of the lower one travels there and the mean back. Messages travel in the background.
    """

    def __init__(
        self, x: Array, communication: Communicator, addresses: Mapping[int, Address] | None = None
    ) -> None:
        """addresses: of the others, by rank; None: all agents make this at once, and tell each other."""
        group = communication.group
        super().__init__(communication, THREADS)
        self._node = group.nodes[self.rank] if group.nodes else ""
        self._region = SharedRegion(x.nbytes)
        self._window: Array = self._region.carve(x.nbytes).view(x.dtype)
        self._window[...] = x
        self._lock = threading.Lock()  # of the window
        self._orders = 0
        self._news = threading.Condition()  # whose lock may be taken again by its holder
        self._messages: deque[PeerMessage] = deque()
        self._came: dict[int, int] = defaultdict(int)
        self._pending: dict[int, list[int]] = defaultdict(lambda: [0, 0])  # messages and their bytes
        self._outboxes: dict[int, Outbox] = {}
        secret = Secret.new() if group.store is None else group.store.secret  # of one that is alone
        self._service = Service(
            self._serve,
            node=self._node,
            host=group.host,
            secret=secret,
            purpose=PURPOSE,
            ranks=range(self.topology.agents),
            rank=self.rank,
            encrypted=group.encrypted,
            seconds=group.timeout_seconds,
        )
        if addresses is None:
            told = json.dumps(asdict(self._service.address)).encode()
            answers = communication.all_gather_messages(np.frombuffer(told, np.uint8).copy())
            addresses = {rank: Address(**json.loads(a.tobytes())) for rank, a in enumerate(answers)}
        self._addresses = dict(addresses)
        self._caller = Caller(secret, PURPOSE, self.rank, self._node, group.encrypted)
        self._channels: dict[int, Channel] = {}
        self._connecting = threading.Lock()
        self._under_way: dict[int, tuple[str, tuple[int, ...]]] = {}  # waits, by thread

    @property
    def window(self) -> Array:
        return self._window

    def close(self) -> None:
        self._service.close()
        for outbox in self._outboxes.values():
            outbox.close()
        for outbox in self._outboxes.values():
            outbox.drain(LEAVE_SECONDS)
        with self._connecting:
            for channel in self._channels.values():
                channel.close()
        self._region.close_descriptor()

    @property
    def address(self) -> Address:
        """The address at which the others reach this agent."""
        return self._service.address

    def admit(self, rank: int, address: Address | None = None) -> None:
        assert address is not None
        with self._connecting:
            self._addresses[rank] = address
            if rank in self._channels:
                self._channels.pop(rank).close()
            self._came[rank] = 0
            super().admit(rank)

    def drain(self) -> None:
        for to, outbox in list(self._outboxes.items()):
            with self._waiting("sending", to):
                outbox.drain(self.timeout_seconds)

    def lose(self, rank: int) -> None:
        super().lose(rank)
        with self._news:
            self._news.notify_all()

    def waits(self) -> list[PresentWait]:
        return [PresentWait(what, agents) for what, agents in list(self._under_way.values())]

    @contextlib.contextmanager
    def _waiting(self, what: str, *agents: int) -> Iterator[None]:
        """The calling thread waits for these agents while the block runs."""
        me = threading.get_ident()
        self._under_way[me] = what, agents
        try:
            yield
        finally:
            self._under_way.pop(me, None)

    # -- windows ---------------------------------------------------------------------------------------

    def _average(self, peer: int, number: int) -> tuple[tuple[int, int], ...]:
        try:
            if self.rank < peer:
                orders = self._average_upward(peer)
            else:
                frame = self._ask(peer, AVERAGE_FOR_ME)
                orders = (frame.numbers[0], frame.numbers[1])
        except PeerLost:
            self.lose(peer)
            return ()
        low, high = sorted((self.rank, peer))
        return ((low, orders[0]), (high, orders[1]))

    def _average_upward(self, peer: int) -> tuple[int, int]:
        """Average with an agent of higher rank, whose window is locked second; the orders in both."""
        channel = self._channel(peer)
        with self._locked() as own:
            if channel.near:
                frame = self._call(channel, AVERAGE, (0,))
            else:
                frame = self._call(channel, AVERAGE, (NOTHING,), self._window.view(np.uint8), self._window)
        return own, frame.numbers[0]

    def _serve(self, client: Connection) -> None:
        other = client.rank
        inbox = np.empty_like(self._window)
        most = max(self._window.nbytes, DESCRIPTION_BYTES + self.most_bytes)
        while (frame := client.receive(most)) is not None:
            try:
                if frame.kind == AVERAGE and other < self.rank:
                    self._serve_average(client, frame, inbox)
                elif frame.kind == AVERAGE_FOR_ME and other > self.rank:
                    frame.expect(0, "a request for the average of two windows")
                    client.reply(DONE, self._average_upward(other))
                elif frame.kind == POST and other != self.rank:
                    self._take_in(other, client, frame)
                    client.reply(DONE, ())
                else:
                    raise Unexpected(f"rank {other} asks rank {self.rank} for something of kind {frame.kind}")
            except PeerLost:
                client.reply(FAILED, ())

    def _serve_average(self, client: Connection, frame: FrameHeader, inbox: Array) -> None:
        """Average the window of an agent of lower rank, which it holds locked, with this one's."""
        theirs, place = inbox, frame.numbers[0]
        frame.expect(inbox.nbytes if place == NOTHING else 0, "a window")
        if place == NOTHING:
            client.fill(inbox.view(np.uint8))
        else:
            theirs = client.shared(place, inbox.nbytes, inbox.itemsize).view(inbox.dtype)
        with self._locked() as order:
            np.add(theirs, self._window, out=self._window)
            self._window *= self._window.dtype.type(0.5)
            theirs[...] = self._window
        back = theirs.view(np.uint8) if place == NOTHING else frames.EMPTY
        client.reply(DONE, (order,), back)

    def _take(self, number: int) -> int:
        if not self._lock.acquire(timeout=self.timeout_seconds):
            raise PeerLost(None, f"the own window was not free within {self.timeout_seconds:g} s")
        order = self._orders
        self._orders += 1
        return order

    def _release(self) -> None:
        self._lock.release()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        order = self._take(NOTHING)
        try:
            yield order
        finally:
            self._release()

    # -- messages --------------------------------------------------------------------------------------

    def _send(self, to: int, message: PeerMessage) -> None:
        if to in self.gone and (to not in self._outboxes or self._outboxes[to].idle):
            self._give_back(message)
            return
        if to not in self._outboxes:  # it also gives back: what is under way comes back first
            self._outboxes[to] = Outbox(lambda message: self._transmit(to, message))
        with self._waiting("sending", to):
            self._outboxes[to].put(message, self.timeout_seconds)

    def _transmit(self, to: int, message: PeerMessage) -> None:
        """Runs in the outbox's thread."""
        if to in self.gone:
            self._give_back(message)
            return
        sizes = [array.nbytes for array in message.arrays]
        described = json.dumps([message.number, [(a.dtype.name, a.size) for a in message.arrays]]).encode()
        payload = np.empty(len(described) + sum(sizes), np.uint8)
        edges = np.cumsum([len(described), *sizes])
        payload[: len(described)] = np.frombuffer(described, np.uint8)
        for array, low in zip(message.arrays, edges, strict=False):
            payload[low : low + array.nbytes] = array.view(np.uint8)
        try:
            self._ask(to, POST, (len(described),), payload)
        except PeerLost:
            self.lose(to)
            self._give_back(message)

    def _give_back(self, message: PeerMessage) -> None:
        self._deliver(PeerMessage(message.source, message.number, message.arrays, returned=True))

    def _take_in(self, source: int, client: Connection, frame: FrameHeader) -> None:
        begin = frame.numbers[0]
        if not 0 < begin <= min(frame.payload_bytes, DESCRIPTION_BYTES):
            raise Unexpected(f"a message of {frame.payload_bytes:,} bytes has a description of {begin:,}")
        payload = np.empty(frame.payload_bytes, np.uint8)
        client.fill(payload)
        number, described = _description(payload[:begin])
        arrays = []
        for dtype, size in described:
            end = begin + size * dtype.itemsize
            if end > len(payload):
                raise Unexpected(f"a message of {len(payload):,} bytes describes longer arrays")
            arrays.append(payload[begin:end].copy().view(dtype))
            begin = end
        if begin != len(payload):
            raise Unexpected(f"a message of {len(payload):,} bytes describes arrays that end at {begin:,}")
        with self._news:
            if not self._news.wait_for(lambda: self._has_room(source), timeout=self.timeout_seconds):
                raise PeerLost(source, f"{self._pending[source][0]:,} messages of it were not received")
            self._count_message(source, 1, arrays)
            self._deliver(PeerMessage(source, number, tuple(arrays)))

    def _has_room(self, source: int) -> bool:
        """True if one more eager message of this agent may wait here."""
        messages, size = self._pending[source]
        return messages < MESSAGES_OF_ONE and size < BYTES_OF_ONE + 64 * self._window.nbytes

    def _count_message(self, source: int, change: int, arrays: Sequence[Array]) -> None:
        """One more message of this agent lies here, or one less."""
        pending = self._pending[source]
        pending[0] += change
        pending[1] += change * sum(array.nbytes for array in arrays)

    def _deliver(self, message: PeerMessage) -> None:
        with self._news:
            self._messages.append(message)
            if not message.returned:
                self._came[message.source] += 1
            self._news.notify_all()

    def _receive(
        self, number: int, wanted: Mapping[int, int], most: Mapping[int, int] | None
    ) -> list[PeerMessage]:
        def here() -> bool:
            return all(self._came[source] >= count or source in self.gone for source, count in wanted.items())

        with self._news:
            if not here():
                with self._waiting("messages", *wanted):
                    self._news.wait_for(here, timeout=self.timeout_seconds)
            if not here():
                late = [source for source, count in wanted.items() if self._came[source] < count]
                raise PeerLost(late[0], f"no message came from it within {self.timeout_seconds:g} s")
            taken = sorted_out(self._messages, most)
            for message in taken:
                if not message.returned:
                    self._count_message(message.source, -1, message.arrays)
            self._news.notify_all()
            return taken

    # -- connections -----------------------------------------------------------------------------------

    def _ask(
        self, peer: int, kind: int, numbers: tuple[int, ...] = (), payload: Any = frames.EMPTY
    ) -> FrameHeader:
        return self._call(self._channel(peer), kind, numbers, payload)

    def _call(
        self,
        channel: Channel,
        kind: int,
        numbers: tuple[int, ...],
        payload: Any = frames.EMPTY,
        into: Array | None = None,
    ) -> FrameHeader:
        me = threading.get_ident()
        if kind != POST:  # for the outbox nobody waits
            self._under_way[me] = "an average of two windows", (channel.to,)
        try:
            frame = channel.call(kind, numbers, payload, into)
        finally:
            self._under_way.pop(me, None)
        if frame.kind == FAILED:
            raise PeerLost(None, "the other agent's peer is gone")
        return frame

    def _channel(self, peer: int) -> Channel:
        with self._connecting:
            if peer not in self._channels:
                self._channels[peer] = Channel(
                    self._addresses[peer], self._caller, {}, self._region, self.timeout_seconds, to=peer
                )
            return self._channels[peer]


def _description(words: Array) -> tuple[int, list[tuple[Any, int]]]:
    """A message's number, and the type and elements of each of its arrays; raises `Unexpected`."""
    try:
        number, described = json.loads(words.tobytes())
        arrays = [(plain_dtype(name), size) for name, size in described]
    except (ValueError, TypeError, RecursionError) as error:
        raise Unexpected(f"a message has no description of its arrays: {error}") from None
    if type(number) is not int or number < 1 or not 0 < len(arrays) <= MOST_ARRAYS:
        raise Unexpected(f"a message has the number {number!r} and {len(arrays)} arrays")
    if any(type(size) is not int or size < 0 for _, size in arrays):
        raise Unexpected("a message has arrays of no length")
    return number, arrays


@final
class Outbox:
    """Sends messages to one agent in a thread, one after the other."""

    def __init__(self, send: Callable[[PeerMessage], None]) -> None:
        self._queue: SimpleQueue[PeerMessage | None] = SimpleQueue()
        self._room = threading.Semaphore(OUTBOX_MESSAGES)
        self._under_way = 0
        self._idle = threading.Condition()
        self._transmit = send
        threading.Thread(target=self._run, name="d5ray-outbox", daemon=True).start()

    def put(self, message: PeerMessage, seconds: float) -> None:
        """Let a message be sent; `PeerLost` when there is no room for it for so long."""
        if not self._room.acquire(timeout=seconds):
            raise PeerLost(None, f"{OUTBOX_MESSAGES} messages were not taken in within {seconds:g} s")
        with self._idle:
            self._under_way += 1
        self._queue.put(message)

    @property
    def idle(self) -> bool:
        """True if no message is under way."""
        with self._idle:
            return not self._under_way

    def drain(self, seconds: float) -> None:
        """Return when all messages have been sent, or after so long."""
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way, timeout=seconds)

    def close(self) -> None:
        """End the thread, when what was put is sent."""
        self._queue.put(None)

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            self._transmit(message)
            self._room.release()
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()
