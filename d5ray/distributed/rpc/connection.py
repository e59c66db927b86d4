"""The client's end of a connection to a service: one request at a time, and once more when it breaks"""

import contextlib
import threading
import time
from typing import Any, final

import numpy as np

from d5ray.distributed.rpc import frames
from d5ray.distributed.rpc.frames import FrameStream, Unexpected
from d5ray.distributed.rpc.service import ERROR, MAX_ERROR_BYTES, Address, Caller, connect
from d5ray.distributed.rpc.shared_region import SharedRegion
from d5ray.distributed.wire.proof import ANYONE
from d5ray.errors import AgentError, PeerLost

Array = np.ndarray[Any, Any]
RETRY_SECONDS = 0.05  # before a service that was lost is tried again
LEAVE_SECONDS = 1.0  # for the last answer


@final
class Channel:
    """One request at a time to one service; whoever sends holds the lock until it has the answer.

    near: whether the service shares the region. seconds: bound of every wait. patience_seconds: for which a
    connection that broke is made again, and the request sent once more; the service must bear that. to: the
    service's rank, where it is an agent.
    """

    def __init__(
        self,
        address: Address,
        caller: Caller,
        hello: dict[str, Any],
        region: SharedRegion | None,
        seconds: float,
        patience_seconds: float = 0.0,
        *,
        to: int = ANYONE,
    ) -> None:
        self.address = address
        self.near = region is not None and address.near(caller.node)
        self.lock = threading.Lock()
        self._patience = patience_seconds
        self._caller, self._hello, self._region, self._seconds = caller, hello, region, seconds
        self.to = to
        self._stream: FrameStream | None = None
        self._deadline = 0.0  # until which a connection that broke is made again
        self._closed = False
        self._prologue: list[tuple[int, tuple[int, ...], frames.Bytes]] = []  # sent after every connect
        self._request: tuple[int, tuple[int, ...], frames.Bytes] = (0, (), frames.EMPTY)
        self._into: Array | None = None  # where the bytes after the answer go

    def call(
        self,
        kind: int,
        numbers: tuple[int, ...] = (),
        payload: frames.Bytes = frames.EMPTY,
        into: Array | None = None,
        *,
        again: bool = False,
    ) -> frames.FrameHeader:
        """Ask, and wait for the answer; bytes after it go into an array. again: after every reconnection."""
        with self.lock:
            self.send(kind, numbers, payload, into)
            answer = self.answer()
            if again:
                self._prologue.append((kind, numbers, payload))
            return answer

    def send(self, kind: int, numbers: tuple[int, ...], payload: frames.Bytes, into: Array | None) -> None:
        """Send a request; its arrays stay as they are until `answer` has returned."""
        self._request, self._into = (kind, numbers, payload), into
        self._deadline = 0.0
        try:
            (self._stream or self._connect(self._seconds)).send(*self._request)
        except (OSError, PeerLost):
            self._broken()  # `answer` tries again

    def answer(self) -> frames.FrameHeader:
        """The answer to what was sent.

        Raises `PeerLost` when none comes in time, and `AgentError` with what the service failed by.
        """
        while True:
            try:
                stream = self._stream
                if stream is None:
                    stream = self._connect(max(0.1, self._deadline - time.monotonic()))
                    stream.send(*self._request)
                return _received(stream, self._into)
            except Unexpected:
                self.drop()
                raise
            except (OSError, PeerLost) as error:
                self._broken()
                late = self._closed or time.monotonic() + RETRY_SECONDS > self._deadline
                if late or isinstance(error, TimeoutError):
                    raise PeerLost(
                        None, f"{self.address.host}:{self.address.port} did not answer: {error}"
                    ) from None
                time.sleep(RETRY_SECONDS)

    def leave(self, kind: int) -> None:
        """Send a last request, if the service listens, and close the connection."""
        if self._stream is not None and self.lock.acquire(timeout=LEAVE_SECONDS):
            try:
                self._stream.wire.bound(LEAVE_SECONDS)
                with contextlib.suppress(OSError, PeerLost, Unexpected):
                    self._stream.send(kind)
                    self._stream.receive(MAX_ERROR_BYTES)
            finally:
                self.lock.release()
        self.close()

    def close(self) -> None:
        """Close the connection: whoever waits for an answer gets `PeerLost`."""
        self._closed = True
        self.drop()

    def _connect(self, seconds: float) -> FrameStream:
        if self._closed:
            raise PeerLost(None, "the connection was closed here")
        made = connect(self.address, self._caller, self._hello, self._region, seconds, to=self.to)
        self._stream = made
        made.wire.bound(self._seconds)
        for request in self._prologue:
            made.send(*request)
            _received(made, None)
        return made

    def _broken(self) -> None:
        """The connection is lost; patience begins."""
        self.drop()
        self._deadline = self._deadline or time.monotonic() + self._patience

    def drop(self) -> None:
        """Forget the connection, and what was to be answered over it; the next request makes another."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.wire.close()  # wakes a thread that waits for an answer


def _received(stream: FrameStream, into: Array | None) -> frames.FrameHeader:
    """The next answer, and the bytes after it in the array."""
    wanted = 0 if into is None else into.nbytes
    frame = stream.receive(max(wanted, MAX_ERROR_BYTES))
    if frame is None:
        raise PeerLost(None, "it closed the connection")
    if frame.kind == ERROR:
        words = np.empty(frame.payload_bytes, np.uint8)
        stream.fill(words)
        raise AgentError(words.tobytes().decode(errors="replace"))
    if frame.payload_bytes:
        frame.expect(wanted, "an answer")
        assert into is not None
        stream.fill(into.view(np.uint8))
    return frame
