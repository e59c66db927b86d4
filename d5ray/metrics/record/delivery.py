"""Delivery of what a process records: kept until it is acknowledged, and sent again in order until then"""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn, Protocol, final

import pyarrow as pa

from d5ray.errors import D5Error, DiskFull, StorageError
from d5ray.metrics.record.spill import Spill

WINDOW: Final = 8  # sent at once and not acknowledged
MOST_BYTES: Final = 32 << 20  # in memory; what comes beyond that waits in a file
OVERHEAD: Final = 4096  # bytes that the objects of a batch take beside its rows
RETRY_SECONDS: Final = 0.2  # between two times that the same is sent


class Away(Exception):
    """The taker of batches is gone; another may stand in its place later."""


class Taker(Protocol):
    """The way to the one that takes batches and files."""

    def send(self, method: str, given: tuple[Any, ...]) -> Any:
        """Send, without waiting; gives what `settled` takes."""

    def settled(self, sent: Any, seconds: float) -> bool:
        """True if this has been acknowledged; waits that long. Raises `Away`, or what the taker raised."""

    def renew(self) -> None:
        """Look who stands in the place of a taker that is gone. Waits for nobody."""


@dataclass(slots=True)
class Kept:
    """A call that is not acknowledged. given: None where its last argument waits in the file, at `place`."""

    method: str
    given: tuple[Any, ...] | None
    size: int
    rows: int
    place: int = 0
    name: str = ""  # of a file


@final
class Delivery:
    """Brings batches to a taker that may die, or have no room, for a while: each, in order, at least once.

    The taker drops what it has by the rows' numbers, so that each counts once. Nobody waits for it but
    `drain`, as long as what is not acknowledged fits into memory and a file beside it (`Spill`). When
    nothing has been acknowledged for `seconds`, or the file has no room for as long, `StorageError` says why
    and how many rows that are.
    """

    def __init__(
        self,
        way: Taker,
        seconds: float,
        *,
        most_bytes: int = MOST_BYTES,
        spill: Spill | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._way, self._seconds, self._most_bytes = way, seconds, most_bytes
        self._retry_seconds = retry_seconds
        self._spill = Spill() if spill is None else spill
        self._waiting: deque[Kept] = deque()  # to be sent, or sent again
        self._flight: deque[tuple[Any, Kept]] = deque()  # sent, and come before those that wait
        self._void: deque[Any] = deque()  # sent after what failed: their answers do not matter
        self._bytes = 0  # in memory
        self._since = 0.0  # when something was acknowledged, or begun to wait
        self._failed: Exception | None = None  # what was answered last, if nothing was acknowledged since
        self._next = 0.0  # when it is sent again
        self._given_up = False
        self._no_room: DiskFull | None = None  # of the file

    def put(self, method: str, *given: Any) -> None:
        """Send a batch, or a name and the bytes of a file; what failed earlier is raised here."""
        size = OVERHEAD + (given[-1].nbytes if isinstance(given[-1], pa.RecordBatch) else len(given[-1]))
        if self._given_up:
            self.pump()  # raises, unless something has been acknowledged after all
        if not self._flight and not self._waiting:
            self._since = time.monotonic()
        if self._bytes + size > self._most_bytes and self._bytes:
            self._put_aside(method, given)
        else:
            self._waiting.append(Kept(method, given, size, _rows(given[-1])))
            self._bytes += size
        self.pump()

    def pump(self, seconds: float = 0.0) -> bool:
        """Take what was acknowledged, and send on; True while something is not. Waits that long at most."""
        self._settle(seconds)
        now = time.monotonic()
        if not self._void and (self._failed is None or now >= self._next):
            while self._waiting and len(self._flight) < (WINDOW if self._failed is None else 1):
                kept = self._waiting[0]  # until it is sent, as that may fail
                self._flight.append((self._way.send(kept.method, self._given(kept)), kept))
                self._waiting.popleft()
        if (self._flight or self._waiting) and now - self._since > self._seconds:
            self._give_up()
        return bool(self._flight or self._waiting)

    def drain(self) -> None:
        """Return when everything has been acknowledged."""
        while self.pump(self._retry_seconds):
            if not self._flight:
                time.sleep(self._retry_seconds / 10)

    @property
    def away(self) -> bool:
        """True if the taker was gone when something was sent last."""
        return isinstance(self._failed, Away)

    def left(self) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Everything that is not acknowledged, in order: methods, and what they are called with."""
        for kept in (*(kept for _, kept in self._flight), *self._waiting):
            yield kept.method, self._given(kept)

    # --------------------------------------------------------------------------------------------------

    def _settle(self, seconds: float) -> None:
        """Take the answers that are there; wait for the first that long."""
        while self._void and self._is_void(self._void[0], seconds):
            self._void.popleft()
        while self._flight:
            sent, kept = self._flight[0]
            try:
                if not self._way.settled(sent, seconds):
                    return
            except (Away, DiskFull) as error:
                self._send_again(error)
                return
            except D5Error:  # the taker does not want it, and never will
                self._flight.popleft()
                self._forget(kept)
                self._rewind()
                raise
            self._flight.popleft()
            self._forget(kept)
            self._since, self._failed, self._given_up, seconds = time.monotonic(), None, False, 0.0

    def _send_again(self, error: Exception) -> None:
        now = time.monotonic()
        if self._failed is None:
            self._since = now  # nobody may have looked for some time
        self._failed, self._next = error, now + self._retry_seconds
        _, kept = self._flight.popleft()
        self._rewind()
        self._waiting.appendleft(kept)
        if isinstance(error, Away):
            self._way.renew()

    def _rewind(self) -> None:
        """Send again all that was sent, when it has been answered."""
        while self._flight:
            sent, kept = self._flight.pop()
            self._waiting.appendleft(kept)
            self._void.append(sent)

    def _is_void(self, sent: Any, seconds: float) -> bool:
        try:
            return self._way.settled(sent, seconds)
        except (Away, D5Error):
            return True

    def _given(self, kept: Kept) -> tuple[Any, ...]:
        if kept.given is not None:
            return kept.given
        data = self._spill.get(kept.place, kept.size)
        if kept.name:
            return kept.name, data
        return (pa.ipc.open_stream(data).read_next_batch(),)

    def _put_aside(self, method: str, given: tuple[Any, ...]) -> None:
        """Keep it in the file; where that has no room, wait for some."""
        data, name = (given[1], given[0]) if len(given) > 1 else (_packed(given[0]), "")
        begun = time.monotonic()
        while True:
            try:
                place = self._spill.put(data)
                break
            except DiskFull as error:
                self._no_room = error
                if time.monotonic() - begun > self._seconds:
                    self._give_up()
            if not self.pump(self._retry_seconds) or not self._flight:
                time.sleep(self._retry_seconds / 10)
        self._no_room = None
        self._waiting.append(Kept(method, None, len(data), _rows(given[-1]), place, name))

    def _forget(self, kept: Kept) -> None:
        if kept.given is None:
            self._spill.forget()
        else:
            self._bytes -= kept.size

    def _give_up(self) -> NoReturn:
        self._given_up = True
        rows = sum(kept.rows for kept in (*(kept for _, kept in self._flight), *self._waiting))
        why: Exception = self._failed or Away("the run's aggregator does not take the rows")
        told = f"{why}, and {self._no_room}" if self._no_room is not None else str(why)
        kind = DiskFull if isinstance(why, DiskFull) or self._no_room is not None else StorageError
        raise kind(f"{told} ({rows} rows were not stored within {self._seconds:g} s)")


def _rows(given: Any) -> int:
    """The rows of `samples` or `events` that a batch stands for; 0 for a file."""
    if not isinstance(given, pa.RecordBatch):
        return 0
    values = given.schema.get_field_index("values")  # a frame has one row a step
    return int(given.num_rows * (given.schema.field(values).type.list_size if values >= 0 else 1))


def _packed(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
