"""Delivery of rows to a store that fails and dies: what is stored is what was recorded, each row once"""

import errno
import random
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from d5ray.errors import DiskFull, StorageError
from d5ray.metrics.record.columns import expand
from d5ray.metrics.record.delivery import Away, Delivery
from d5ray.metrics.record.files import storing
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.spill import Spill
from d5ray.metrics.record.store import RunWriter
from tests.patience import patience

RUN = "r"
SECONDS = 0.4  # that rows are offered to who never takes them


class Store:
    """A real writer behind a queue, as an actor has one: it answers late, has no room at times, and dies."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.chance = root, random.Random(seed)
        self.writer: RunWriter | None = RunWriter(root, RUN)
        self.writer.open({})
        self.queue: deque[list[Any]] = deque()
        self.full_for = 0
        self.deaths = 0
        self.files: dict[str, bytes] = {}
        self.alive = True

    def send(self, method: str, given: tuple[Any, ...]) -> Any:
        sent: list[Any] = [method, given, None]  # and what was answered
        if self.alive:
            self.queue.append(sent)
        else:
            sent[2] = Away("died")
        return sent

    def settled(self, sent: Any, seconds: float) -> bool:
        for _ in range(self.chance.randrange(3) if seconds == 0 else 8):
            self.work()
        if isinstance(sent[2], Exception):
            raise sent[2]
        return sent[2] is not None

    def renew(self) -> None:
        if not self.alive and self.chance.random() < 0.5:
            self.writer = RunWriter(self.root, RUN)
            self.writer.resume()
            self.alive = True

    def work(self) -> None:
        if not self.alive or not self.queue:
            return
        if self.chance.random() < 0.02:
            self.full_for = self.chance.randrange(1, 20)
        sent = self.queue.popleft()
        if self.chance.random() < 0.03:
            self.die(sent, stored=self.chance.random() < 0.5)
            return
        try:
            sent[2] = self.store(sent[0], *sent[1]) or True
        except StorageError as error:
            sent[2] = error

    def store(self, method: str, *given: Any) -> object:
        if self.full_for:
            self.full_for -= 1
            with storing(self.root):
                raise OSError(errno.ENOSPC, "No space left on device")
        assert self.writer is not None
        if method == "keep_file":
            self.files[given[0]] = bytes(given[1])
            return True
        if method == "append_events":
            return self.writer.append_events(given[0])
        return self.writer.append(expand(given[0]) if method == "append_frames" else given[0])

    def die(self, sent: Any, *, stored: bool) -> None:
        """Die as a killed process does: with the answer under way, and whatever was in the queue."""
        assert self.writer is not None
        if stored:
            with suppress(StorageError):
                self.store(sent[0], *sent[1])
        self.writer.leave()
        self.alive, self.writer = False, None
        self.deaths += 1
        for each in (sent, *self.queue):
            each[2] = Away("died")
        self.queue.clear()


def recorder_to(delivery: Delivery) -> Recorder:
    return Recorder(
        run_id=RUN, agent="a", rank=0, node="n", batch_rows=20,
        send=lambda batch: delivery.put("append", batch),
        send_frames=lambda batch: delivery.put("append_frames", batch),
        send_events=lambda batch: delivery.put("append_events", batch),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_what_is_stored_is_what_was_recorded(seed: int, tmp_path: Path) -> None:
    """Whatever fails when: every row, event and file once and in order, also those that waited in a file."""
    store, chance = Store(tmp_path, seed), random.Random(seed + 1000)
    delivery = Delivery(store, patience(60), most_bytes=chance.choice([1, 20_000, 1 << 20]), retry_seconds=0)
    recorder = recorder_to(delivery)
    frame = recorder.frame(("loss", "step_time"))
    expected: list[float] = []
    events = files = 0
    for step in range(60):
        for _ in range(chance.randrange(4)):
            frame.append(step, 0, "train", (float(step), step + 0.5))
            expected += [step, step + 0.5]
        if chance.random() < 0.3:
            recorder.record("test_loss", step + 0.25, step=step)
            expected.append(step + 0.25)
        if chance.random() < 0.2:
            recorder.event("checkpoint", step=step)
            events += 1
        if chance.random() < 0.1:
            delivery.put("keep_file", "best", b"%d" % step * 5000)
            files = step
        recorder.flush()
        assert delivery._bytes >= 0  # by which it is told what goes into the file
    delivery.drain()
    while not store.alive:
        store.renew()
    assert store.writer is not None
    assert store.writer.received() == {("a", 0): recorder.rows}
    store.writer.close()
    tables = Run(tmp_path / RUN).tables()
    assert sorted(tables["samples"]["seq"].to_pylist()) == list(range(recorder.rows))
    assert sorted(tables["samples"]["value"].to_pylist()) == sorted(expected)
    assert tables["events"].num_rows == events
    if files:
        assert store.files["best"] == b"%d" % files * 5000


class Never:
    """A taker that has no room, or never answers."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.sent = error, 0

    def send(self, method: str, given: tuple[Any, ...]) -> Any:
        self.sent += 1

    def settled(self, sent: Any, seconds: float) -> bool:
        time.sleep(seconds)
        if self.error is not None:
            raise self.error
        return False

    def renew(self) -> None:
        pass


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (DiskFull("the disk of /x is full (0 B free)"), DiskFull, "the disk of /x is full"),
        (Away("the run's aggregator died"), StorageError, "aggregator died"),
        (None, StorageError, "does not take the rows"),
    ],
)
def test_who_never_takes_the_rows_ends_it_with_their_number(
    error: Exception | None, kind: type[Exception], said: str
) -> None:
    """Nobody waits before `drain`, and then as long as said; the same batch is sent again all the time."""
    taker = Never(error)
    delivery = Delivery(taker, SECONDS, retry_seconds=SECONDS / 8)
    recorder = recorder_to(delivery)
    begin = time.monotonic()
    for step in range(30):
        recorder.record("loss", 1.0, step=step)
        recorder.flush()
    assert time.monotonic() - begin < SECONDS or patience(1) > 1.0
    with pytest.raises(kind, match=said) as found:
        delivery.drain()
    assert f"(30 rows were not stored within {SECONDS:g} s)" in str(found.value)
    assert time.monotonic() - begin >= SECONDS
    assert error is None or taker.sent >= 3
    with pytest.raises(kind):
        delivery.drain()  # at once


def test_what_could_not_be_sent_is_sent_later() -> None:
    """A send that raises, as where memory for the message is missing, loses nothing."""
    taken: list[Any] = []

    class Unsure:
        def send(self, method: str, given: tuple[Any, ...]) -> Any:
            if not taken and not refused:
                refused.append(method)
                raise MemoryError
            taken.append(given)

        def settled(self, sent: Any, seconds: float) -> bool:
            return True

        def renew(self) -> None:
            pass

    refused: list[str] = []
    delivery = Delivery(Unsure(), 1.0)
    with pytest.raises(MemoryError):
        delivery.put("keep_file", "first", b"1")
    delivery.put("keep_file", "second", b"2")
    delivery.drain()
    assert taken == [("first", b"1"), ("second", b"2")]


def test_a_file_that_has_no_room_is_told_with_its_folder() -> None:
    """Beyond memory and file nothing is dropped silently: the error names the folder and the rows."""
    spill = Spill(20_000)
    delivery = Delivery(Never(Away("died")), 0.3, most_bytes=1, spill=spill)
    recorder = recorder_to(delivery)
    with pytest.raises(DiskFull, match=r"died, and the rows that wait in .* rows were not stored"):
        for step in range(1000):
            recorder.record("loss", 1.0, step=step)
            recorder.flush()
    spill.close()


def test_what_waits_in_a_file_comes_back_and_leaves_nothing(tmp_path: Path) -> None:
    """Pieces come back as they were put; when the last is forgotten, the file is empty again."""
    spill = Spill()
    pieces = [bytes([number]) * (number * 1000 + 1) for number in range(9)]
    places = [spill.put(piece) for piece in pieces]
    for place, piece in reversed(list(zip(places, pieces, strict=True))):
        assert spill.get(place, len(piece)) == piece
        spill.forget()
    assert spill.put(b"next") == 0
    spill.close()
