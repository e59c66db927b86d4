"""Runs served to other processes by Arrow Flight, to those who have the token

`do_get` takes a ticket {"sql": "SELECT …"} or {"table": "samples"} in JSON and streams record batches;
`list_flights` tells the tables, and `get_flight_info` the schema of a query. The token comes in the header
`authorization: Bearer TOKEN` of every call. Flight itself is described at
https://arrow.apache.org/docs/format/Flight.html.
"""

import hmac
import json
import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, final

import pyarrow as pa
from pyarrow import flight

from d5ray.errors import ConfigurationError, D5Error, StorageError, nearest
from d5ray.metrics.judge.summary import SUMMARY
from d5ray.metrics.queries.binding import free_at, not_free
from d5ray.metrics.queries.source import Answer, QuerySource, while_wanted
from d5ray.metrics.queries.tokens import write_private
from d5ray.metrics.record.schema import TABLES

AT_ONCE = 2  # queries; others wait for their turn
TURN_SECONDS = 10.0  # until one that waits is told to come again
END_SECONDS = 5.0  # for calls under way when the server ends
KEPT = "flight.json"  # in a run's folder: where the server is, and its token
_NAMES = (*TABLES, "summary")


@final
class FlightEndpoint:
    """A server on a thread of its own, from `start` to `stop`.

    source: makes what answers, once for each query at a time. folder: gets the file `flight.json` with the
    location and the token, which only its owner can read, while the server runs. token: by default a new one.
    """

    def __init__(
        self,
        source: Callable[[], QuerySource],
        bind: str = "0",
        folder: Path | None = None,
        token: str = "",
    ) -> None:
        self.host, self.port = free_at(bind)
        self.token = token or secrets.token_urlsafe(32)
        self._pool: queue.Queue[QuerySource] = queue.Queue()
        self._sources = [source() for _ in range(AT_ONCE)]
        for each in self._sources:
            self._pool.put(each)
        self._kept = None if folder is None else folder / KEPT
        self._server: Any = None

    @property
    def location(self) -> str:
        """The endpoint's address, such as grpc+tcp://127.0.0.1:41003."""
        return f"grpc+tcp://{self.host}:{self.port}"

    def start(self) -> "FlightEndpoint":
        """Listen; raises `ConfigurationError` where the port is taken or no address of this machine."""
        guard = {"token": _Guard(self.token)}
        try:
            self._server = _Server(f"grpc://{self.host}:{self.port}", self._pool, guard)
        except (pa.ArrowException, OSError) as error:
            raise not_free(self.host, self.port, error) from error
        self.port = self._server.port
        if self._kept is not None:
            write_private(self._kept, json.dumps({"location": self.location, "token": self.token}))
        return self

    def stop(self) -> None:
        """End the queries under way and the server, within seconds; harmless a second time."""
        server, self._server = self._server, None
        if server is None:
            return
        for source in self._sources:
            source.interrupt()
        ending = threading.Thread(target=server.shutdown, daemon=True)  # waits for clients that do not read
        ending.start()
        ending.join(END_SECONDS)
        if self._kept is not None:
            self._kept.unlink(missing_ok=True)


class _Server(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, location: str, pool: "queue.Queue[QuerySource]", middleware: dict[str, Any]) -> None:
        super().__init__(location, middleware=middleware)
        self._pool = pool

    def do_get(self, context: Any, ticket: Any) -> Any:
        query = _query(ticket.ticket)
        stack = ExitStack()
        try:
            answer = stack.enter_context(self._answer(query, context.is_cancelled))
        except BaseException:
            stack.close()
            raise
        return flight.GeneratorStream(answer.schema, _until_read(answer, stack))

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        query = _query(descriptor.command)
        with self._answer(query, context.is_cancelled) as answer:
            return _info(answer.schema, descriptor, descriptor.command)

    def list_flights(self, context: Any, _criteria: bytes) -> Iterator[Any]:
        for name in _NAMES:
            command = json.dumps({"table": name}).encode()
            schema = SUMMARY  # which would take a while to make
            if name in TABLES:
                with self._answer(f"SELECT * FROM {name} LIMIT 0", context.is_cancelled) as answer:
                    schema = answer.schema
            yield _info(schema, flight.FlightDescriptor.for_command(command), command)

    @contextmanager
    def _answer(self, query: str, gone: Callable[[], bool]) -> Iterator[Answer]:
        """The answer, of which the first batch is made: until then a client that goes ends the query."""
        try:
            source = self._pool.get(timeout=TURN_SECONDS)
        except queue.Empty:
            raise flight.FlightUnavailableError(f"{AT_ONCE} other queries run: ask again later") from None
        try:
            with ExitStack() as stack:
                with while_wanted(source, gone):
                    answer = stack.enter_context(source.ask(query))
                    first = next(answer.batches, None)
                begun = () if first is None else (first,)
                yield Answer(answer.schema, chain(begun, answer.batches))
        except D5Error as error:
            raise _told(error) from error
        finally:
            self._pool.put(source)


class _Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets those in who know the token; how long a comparison takes tells nothing about it."""

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def start_call(self, _info: Any, headers: dict[str, list[str]]) -> None:
        given = next((values for name, values in headers.items() if name.lower() == "authorization"), [""])
        if not hmac.compare_digest(str(given[0]).encode(), self._expected):
            raise flight.FlightUnauthenticatedError("the token is wrong, or there is none")


def _until_read(answer: Answer, stack: ExitStack) -> Iterator[pa.RecordBatch]:
    with stack:
        try:
            yield from answer.batches
        except D5Error as error:
            raise _told(error) from error


def _query(command: bytes) -> str:
    try:
        request = json.loads(command)
        ((kind, value),) = request.items()
    except (ValueError, AttributeError):
        kind, value = "", ""
    if kind == "table" and value not in _NAMES:
        raise _told(ConfigurationError(f"There is no table {value!r}: {nearest(value, _NAMES)}"))
    if kind not in ("sql", "table") or not isinstance(value, str):
        raise _told(
            ConfigurationError(
                'A ticket is {"sql": "SELECT …"} or {"table": "samples"} in JSON, not ' + repr(command[:80])
            )
        )
    return value if kind == "sql" else f"SELECT * FROM {value}"


def _told(error: D5Error) -> Exception:
    """The error as it goes over the wire; the client makes the same of it."""
    kind = "storage" if isinstance(error, StorageError) else "configuration"
    told = json.dumps({"kind": kind, "message": str(error)}).encode()
    failed: Exception = flight.FlightServerError(str(error), told)
    return failed


def _info(schema: pa.Schema, descriptor: Any, command: bytes) -> Any:
    return flight.FlightInfo(schema, descriptor, [flight.FlightEndpoint(command, [])], -1, -1)
