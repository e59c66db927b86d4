"""Runs that a Flight server answers for"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import pyarrow as pa
from pyarrow import flight

from d5ray.errors import ConfigurationError, D5Error, StorageError
from d5ray.metrics.queries.source import Answer, QuerySource

ANSWER_SECONDS = 300.0  # for a whole answer; a server's own limit is shorter


@final
class FlightSource(QuerySource):
    """Asks a server at an address such as grpc+tcp://127.0.0.1:41003."""

    def __init__(self, where: str, token: str | None) -> None:
        if not token:
            raise ConfigurationError(
                f"{where} needs its token: token=…, --token-file FILE or the variable D5RAY_TOKEN; the "
                "server printed it, and it stands in flight.json in the run's folder"
            )
        self._where, self._token = where, token
        self._client: Any = None
        self._reader: Any = None

    @contextmanager
    def ask(self, query: str) -> Iterator[Answer]:
        options = flight.FlightCallOptions(
            timeout=ANSWER_SECONDS, headers=[(b"authorization", f"Bearer {self._token}".encode())]
        )
        try:
            if self._client is None:
                self._client = flight.connect(self._where.replace("grpc://", "grpc+tcp://", 1))
            ticket = flight.Ticket(json.dumps({"sql": query}).encode())
            self._reader = self._client.do_get(ticket, options)
            schema = self._reader.schema
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._told(error) from error
        try:
            yield Answer(schema, self._batches())
        finally:
            if self._reader is not None:
                self.interrupt()

    def interrupt(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
        else:
            self._client = None  # one that waits for an answer is left to its server's limit

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while (reader := self._reader) is not None:
            try:
                yield reader.read_chunk().data
            except StopIteration:
                self._reader = None
                return
            except (pa.ArrowException, OSError) as error:
                raise self._told(error) from error

    def _told(self, error: Exception) -> D5Error:
        try:
            told = json.loads(error.extra_info)  # type: ignore[attr-defined]
            kind: type[D5Error] = StorageError if told["kind"] == "storage" else ConfigurationError
            return kind(told["message"])
        except (AttributeError, ValueError, KeyError, TypeError):
            pass
        if isinstance(error, flight.FlightUnauthenticatedError):
            return ConfigurationError(
                f"{self._where} refuses the token: give the one that this server printed, and that stands in "
                "flight.json in the run's folder"
            )
        if isinstance(error, flight.FlightUnavailableError):
            return StorageError(
                f"nothing answers at {self._where} ({_short(error)}): the run may have ended, then ask its "
                "folder; or the address is another one"
            )
        if isinstance(error, flight.FlightTimedOutError):
            return StorageError(f"{self._where} did not answer within {ANSWER_SECONDS:g} s")
        if isinstance(error, flight.FlightCancelledError):
            return ConfigurationError("The query was interrupted")
        return StorageError(f"{self._where} cannot be asked: {_short(error)}")


def _short(error: Exception) -> str:
    lines = str(error).splitlines() or [type(error).__name__]
    text = lines[0].partition("with message: ")[2] or lines[0]
    return text.partition(". Detail:")[0].partition(". gRPC client debug")[0][:200]
