"""Sources of queries: the tables of a run or of several, wherever they are, and the rows that come back"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa

LOOK_SECONDS = 0.5  # between two looks whether somebody still waits


@final
@dataclass
class Answer:
    """The rows that a query gives, batch by batch as they are made."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def table(self, most_rows: int | None = None) -> pa.Table:
        """The rows of the answer as a table: all of them, or the first ones."""
        if most_rows is None:
            return pa.Table.from_batches(self.batches, self.schema)
        taken: list[pa.RecordBatch] = []
        left = most_rows
        while left > 0 and (batch := next(self.batches, None)) is not None:
            taken.append(batch.slice(0, left))
            left -= batch.num_rows
        return pa.Table.from_batches(taken, self.schema)


@final
@dataclass(frozen=True)
class Limits:
    """The time, memory and threads that a query may take; None: any time, and as many threads as cores."""

    memory: str = "50%"  # of the machine, or such as "1GB"
    seconds: float | None = None
    threads: int | None = None


class QuerySource(ABC):
    """Answers queries, one at a time."""

    @abstractmethod
    def ask(self, query: str) -> AbstractContextManager[Answer]:
        """The answer to the query, while the context lasts.

        Raises `ConfigurationError` for a wrong query, one that is refused, and one that takes too much or too
        long; `StorageError` for a run that cannot be read or reached.
        """

    @abstractmethod
    def interrupt(self) -> None:
        """Let the query that another thread asks fail soon; harmless when there is none."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections and files."""


@contextmanager
def while_wanted(source: QuerySource, gone: Callable[[], bool]) -> Iterator[None]:
    """End the query that the block asks when nobody waits for it any more. gone: looked at twice a second."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(LOOK_SECONDS):
            if gone():
                source.interrupt()

    watching = threading.Thread(target=watch, name="d5ray-query-wanted", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()


@final
@dataclass(frozen=True, eq=False)
class StoredRows:
    """The rows of a table: complete files, read as far as a query needs them, and the rest.

    held: a pyarrow.Table, or a Dataset that is read as far as needed. Either may be missing.
    """

    files: tuple[str, ...] = ()
    held: Any = None

    def same(self, other: "StoredRows | None") -> bool:
        """True if nothing has changed since the other look."""
        return other is not None and self.files == other.files and self.held is other.held


class Shelf(ABC):
    """The tables of runs as they are stored. `look` comes first; what it found stays until the next look."""

    @abstractmethod
    def look(self) -> None:
        """Look at the files as they are now; raises `StorageError` if they cannot be read."""

    @property
    @abstractmethod
    def files(self) -> tuple[str, ...]:
        """The complete files that `rows` may name."""

    @abstractmethod
    def rows(self, table: str) -> StoredRows:
        """The rows of this table; the same object while nothing has changed."""

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """The runs that could not be read, and so are missing, a sentence each."""
