"""The client's end of a connection to a service: one request at a time, and once more when it breaks"""

import contextlib
import socket
import threading
import time
from typing import Any, final

import numpy as np

from d5ray.distributed.remote import frames
from d5ray.distributed.remote.region import Region
from d5ray.distributed.remote.service import ERROR, Address, connect
from d5ray.errors import AgentError, PeerLost

Array = np.ndarray[Any, Any]
RETRY_SECONDS = 0.05  # before a service that was lost is tried again
LEAVE_SECONDS = 1.0  # for the last answer


@final
class Channel:
    """One request at a time to one service; whoever sends holds the lock until it has the answer.

    near: whether the service shares the region. seconds: bound of every wait. patience_seconds: for which a
    connection that broke is made again, and the request sent once more; the service must bear that.
    """

    def __init__(
        self,
        address: Address,
        node: str,
        hello: dict[str, Any],
        region: Region | None,
        seconds: float,
        patience_seconds: float = 0.0,
    ) -> None:
        self.address = address
        self.near = region is not None and address.near(node)
        self.lock = threading.Lock()
        self._patience = patience_seconds
        self._node, self._hello, self._region, self._seconds = node, hello, region, seconds
        self._socket: socket.socket | None = None
        self._deadline = 0.0  # until which a connection that broke is made again
        self._closed = False
        self._prologue: list[tuple[int, tuple[int, ...], frames.Bytes]] = []  # sent after every connect
        self._request: tuple[int, tuple[int, ...], frames.Bytes] = (0, (), frames.EMPTY)
        self._into: Array | None = None  # where the bytes behind the answer go

    def call(
        self,
        kind: int,
        numbers: tuple[int, ...] = (),
        payload: frames.Bytes = frames.EMPTY,
        into: Array | None = None,
        *,
        again: bool = False,
    ) -> frames.Frame:
        """Ask, and wait for the answer; bytes behind it go into an array. again: after every reconnection."""
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
            frames.send(self._socket or self._connect(self._seconds), *self._request)
        except (OSError, PeerLost):
            self._broken()  # `answer` tries again

    def answer(self) -> frames.Frame:
        """The answer to what was sent.

        Raises `PeerLost` when none comes in time, and `AgentError` with what the service failed by.
        """
        while True:
            try:
                connection = self._socket
                if connection is None:
                    connection = self._connect(max(0.1, self._deadline - time.monotonic()))
                    frames.send(connection, *self._request)
                return self._received(connection)
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
        if self._socket is not None and self.lock.acquire(timeout=LEAVE_SECONDS):
            try:
                self._socket.settimeout(LEAVE_SECONDS)
                with contextlib.suppress(OSError, PeerLost):
                    frames.send(self._socket, kind)
                    frames.receive(self._socket)
            finally:
                self.lock.release()
        self.close()

    def close(self) -> None:
        """Close the connection: whoever waits for an answer gets `PeerLost`."""
        self._closed = True
        self.drop()

    def _received(self, connection: socket.socket) -> frames.Frame:
        frame = frames.receive(connection)
        if frame is None:
            raise PeerLost(None, "it closed the connection")
        if frame.kind == ERROR:
            words = np.empty(frame.payload_bytes, np.uint8)
            frames.fill(connection, words)
            raise AgentError(words.tobytes().decode())
        if frame.payload_bytes:
            assert self._into is not None
            frames.fill(connection, self._into.view(np.uint8))
        return frame

    def _connect(self, seconds: float) -> socket.socket:
        if self._closed:
            raise PeerLost(None, "the connection was closed here")
        made = connect(self.address, self._node, self._hello, self._region, seconds)
        self._socket = made
        made.settimeout(self._seconds)
        for request in self._prologue:
            frames.send(made, *request)
            frames.receive(made)
        return made

    def _broken(self) -> None:
        """The connection is lost; patience begins."""
        self.drop()
        self._deadline = self._deadline or time.monotonic() + self._patience

    def drop(self) -> None:
        """Forget the connection, and what was to be answered over it; the next request makes another."""
        connection, self._socket = self._socket, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
            connection.close()
