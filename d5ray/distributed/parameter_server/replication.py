"""A copy of a shard in another process: it takes the same requests in order, before they are answered

Chain replication with one link (van Renesse & Schneider, OSDI 2004), as parameter servers have it (Li et al.,
OSDI 2014): what happens in a shard depends on the order of its requests alone, so the requests are sent on.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final, NamedTuple, final

import numpy as np

from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.checkpoints.state import pack, unpack_into
from d5ray.distributed.parameter_server.requests import (
    COPIED,
    COPY_PURPOSE,
    ENTERED,
    INSTALLED,
    LEFT,
    PULL,
    PUSH,
    PUSH_PULL,
    STATE,
    Array,
    Request,
    counts_as_bits,
    counts_of_bits,
    memory_bytes,
)
from d5ray.distributed.parameter_server.shard import Shard
from d5ray.distributed.rpc import frames
from d5ray.distributed.rpc.frames import Unexpected
from d5ray.distributed.rpc.service import Address, Caller, Connection, Service, connect
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import D5Error

RETRY_SECONDS: Final = 0.5  # before a copy that was lost is made again
FOLLOW_SECONDS: Final = 5.0  # for a copy to take what its dead source had sent
SOURCE: Final = 0  # the rank of who is copied
ACKNOWLEDGE: Final = 9  # the number in a frame that asks for an answer


class Record(NamedTuple):
    """One entry of a shard's log. payload: memory that stays as it is until the request is answered."""

    kind: int
    numbers: tuple[int, ...] = ()
    payload: frames.Bytes = frames.EMPTY


def request_record(request: Request) -> Record:
    """A request, for the log."""
    numbers = request.rank, request.sequence, counts_as_bits(request.counts)
    if request.vector is None:
        return Record(PULL, numbers)
    vector = np.ascontiguousarray(request.vector).view(np.uint8)
    return Record(PUSH if request.into is None else PUSH_PULL, numbers, vector)


def state_record(shard: Shard) -> Record:
    """All of a shard, for the log."""
    state = SimpleNamespace(**shard.state(), members=set(shard.policy.members))
    return Record(STATE, (), pack(state, "shard").bytes)


@final
class Replicator:
    """Sends a shard's log to its copy. begin(): the records that a new copy starts with; the shard is locked.

    While no copy is there, as when its process has died, the shard answers alone, and it is tried again.
    """

    def __init__(
        self,
        begin: Callable[["Replicator"], None],
        secret: Secret,
        node: str,
        seconds: float,
        *,
        encrypted: bool,
    ) -> None:
        self._begin, self._seconds = begin, seconds
        self._caller = Caller(secret, COPY_PURPOSE, SOURCE, node, encrypted)
        self._address: Address | None = None
        self._news = threading.Condition()
        self._log: deque[Record] = deque()
        self._up = self._closed = False
        self.position = 0  # of the last record
        self._copied = 0  # up to which the copy has them
        threading.Thread(target=self._run, name="d5ray-copy", daemon=True).start()

    def copy_to(self, address: Address) -> None:
        """Keep the copy there from now on."""
        with self._news:
            self._address, self._up = address, False
            self._news.notify_all()

    def log(self, record: Record) -> None:
        """Send this to the copy, if there is one; the shard is locked."""
        with self._news:
            if self._up:
                self._log.append(record)
                self.position += 1
                self._news.notify_all()

    def wait(self, position: int) -> None:
        """Return when the copy has the log up to there, or is lost."""
        with self._news:
            while self._up and self._copied < position:
                self._news.wait(RETRY_SECONDS)

    def start(self, records: Sequence[Record]) -> None:
        """A new copy begins with these; the shard is locked."""
        with self._news:
            self._log.clear()
            self._log.extend(records)
            self.position += len(records)
            self._copied = self.position - len(records)
            self._up = True

    def close(self) -> None:
        """End it."""
        with self._news:
            self._closed, self._up = True, False
            self._news.notify_all()

    # --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closed:
            with self._news:
                address = self._address
                if address is None:
                    self._news.wait()
                    continue
            with suppress(OSError, D5Error):
                self._follow(address)
            with self._news:
                self._up = False
                self._news.notify_all()
                if not self._closed and self._address is address:
                    self._news.wait(RETRY_SECONDS)

    def _follow(self, address: Address) -> None:
        stream = connect(address, self._caller, {}, None, self._seconds)
        try:
            self._begin(self)
            while records := self._taken():
                for record in records[:-1]:
                    stream.send(*record)
                kind, numbers, payload = records[-1]
                stream.send(kind, (*numbers, *(0,) * (ACKNOWLEDGE - len(numbers)), 1), payload)
                answer = stream.receive(0)
                if answer is None or answer.kind != COPIED:
                    return
                with self._news:
                    self._copied += len(records)
                    self._news.notify_all()
        finally:
            stream.wire.close()

    def _taken(self) -> list[Record]:
        """All that is to be sent now; nothing when the copy is to be elsewhere, or none."""
        with self._news:
            while self._up and not self._log:
                self._news.wait()
            taken = list(self._log) if self._up else []
            self._log.clear()
            return taken


@final
class ShardCopy:
    """The copy of a shard of another process. make(x): a shard like that one. node, host: where it runs."""

    def __init__(
        self, make: Callable[[Array], Shard], *, secret: Secret, node: str, host: str, encrypted: bool = True
    ) -> None:
        self._make = make
        self._shard: Shard | None = None
        self._free: list[Array] = []  # buffers of pushes that are done
        self._turns = 0  # connections so far
        self._follows = 0  # of those that are served
        self._idle = threading.Condition()
        self._service = Service(
            self._serve, node=node, host=host, secret=secret, purpose=COPY_PURPOSE, ranks=frozenset({SOURCE}),
            encrypted=encrypted,
        )  # fmt: skip

    @property
    def address(self) -> Address:
        """The address at which the shard's own process reaches it."""
        return self._service.address

    def state(self) -> dict[str, Any] | None:
        """The state that `Shard.restore` needs, when all is in it that the dead source had sent."""
        with self._idle:
            self._idle.wait_for(lambda: not self._follows, FOLLOW_SECONDS)
            return None if self._shard is None else self._shard.state()

    def close(self) -> None:
        """End it."""
        self._service.close()

    # --------------------------------------------------------------------------------------------------

    def _serve(self, client: Connection) -> None:
        with self._idle:
            self._turns += 1
            self._follows += 1
            turn = self._turns
        try:
            self._follow(client, turn)
        finally:
            with self._idle:
                self._follows -= 1
                self._idle.notify_all()

    def _follow(self, client: Connection, turn: int) -> None:
        most = memory_bytes()
        while (frame := client.receive(most)) is not None:
            payload = self._buffer(frame.payload_bytes)
            client.fill(payload)
            if frame.numbers[ACKNOWLEDGE]:
                client.reply(COPIED, ())
            with self._idle:
                if turn != self._turns:  # the source has come again
                    return
                self._take(frame.kind, frame.numbers, payload)

    def _buffer(self, size: int) -> Array:
        if not size:
            return frames.EMPTY
        with self._idle:
            while self._free:
                if len(buffer := self._free.pop()) == size:
                    return buffer
        return np.empty(size, np.uint8)

    def _take(self, kind: int, numbers: Sequence[int], payload: Array) -> None:
        if kind == STATE:
            self._shard = self._restored(payload)
            return
        shard = self._shard
        if shard is None:
            raise Unexpected("a shard's log begins with something else than its state")
        dtype = shard.x.dtype
        if kind in (PUSH, PULL, PUSH_PULL):
            rank, sequence, bits, *_ = numbers
            vector = None if kind == PULL else payload.view(dtype)
            into: Any = None if kind == PUSH else NOWHERE
            free = self._free.append if len(payload) else None
            done = lambda _: free(payload) if free else None  # noqa: E731 - it is handed on
            request = Request(rank, sequence, vector, into, done, counts=counts_of_bits(bits))
            shard.submit(request)
        elif kind == ENTERED:
            shard.enter(numbers[0], again=bool(numbers[1]))
        elif kind == LEFT:
            shard.leave(numbers[0])
        elif kind == INSTALLED:
            shard.install(payload.view(dtype), numbers[0], numbers[1])
            self._free.append(payload)
        else:
            raise Unexpected(f"a shard's log has a record of kind {kind}")

    def _restored(self, payload: Array) -> Shard:
        packed = Packed.read(payload, "a shard's state")
        fresh = self._make(np.zeros_like(packed.arrays["shard.x"]))
        state = SimpleNamespace(**fresh.state(), members=set())
        unpack_into(state, packed, np.empty(0), "shard")
        fresh.restore(vars(state))
        for rank in fresh.policy.members - state.members:
            fresh.leave(rank)
        return fresh


class _Nowhere:
    """What a copy reads into: nobody has asked it."""

    def __setitem__(self, place: object, values: object) -> None:
        """Forget them."""


NOWHERE: Final = _Nowhere()
