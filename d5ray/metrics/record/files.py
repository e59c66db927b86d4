"""Files that survive a crash: Arrow streams that grow batch by batch, tables that appear as a whole."""

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from d5ray.errors import AccessError, DiskFull, StorageError, first_line

T = TypeVar("T")
MOST_TOGETHER = 1024  # batches that are in memory at once, until they are one
ADVICE = "free some space there, or name another place (--out or --output; of runs, D5RAY_HOME)"
ROOM_SECONDS = 0.2  # between two looks whether a full disk has room again
_END_OF_STREAM_BYTES = 8


class StreamFile:
    """An Arrow IPC stream on disk that is open for appending.

    Every batch is written with its own dictionaries, in one piece: agents number their words differently,
    and a piece that is cut off takes nothing with it. Opening a file that a killed writer left behind cuts
    the incomplete piece off and goes on after it. One writer at a time holds the file's lock.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema, self._torn = path, schema, False
        self._header = schema.serialize().to_pybytes()
        # the columns of a batch are small: threads for them take ten times as long as the work
        self._options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with storing(path):
            self._file = path.open("r+b" if path.exists() else "x+b", buffering=0)
        try:
            self._lock()
            self._end = max((end for _, end in read_stream(path)), default=len(self._header))
            with storing(path):
                self._file.truncate(self._end if self._has_header() else 0)
                self._file.seek(0, os.SEEK_END)
            if self._file.tell() == 0:
                self._end = 0
                self._write(memoryview(self._header))
        except BaseException:
            self._file.close()
            raise

    def append(self, batch: pa.RecordBatch) -> None:
        """Hands the batch to the operating system; after a StorageError the file is as it was before."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema, options=self._options) as writer:
            writer.write_batch(batch)
        self._write(memoryview(sink.getvalue())[len(self._header) : -_END_OF_STREAM_BYTES])

    def close(self) -> None:
        """Close the file; all that was appended has been handed to the operating system."""
        self._file.close()

    def _write(self, piece: memoryview) -> None:
        with storing(self._path):
            if self._torn:
                self._cut()
            try:
                written = 0
                while written < len(piece):
                    written += self._file.write(piece[written:])
            except OSError:
                self._torn = True  # until it is cut, which some full disks refuse as well
                with suppress(OSError):
                    self._cut()
                raise
            self._end += written

    def _cut(self) -> None:
        """Cut off a piece that was written in part."""
        self._file.truncate(self._end)
        self._file.seek(self._end)
        self._torn = False

    def _has_header(self) -> bool:
        self._file.seek(0)
        found = self._file.read(len(self._header))
        if len(found) == len(self._header) and found != self._header:
            raise StorageError(
                f"{self._path} was begun with other columns than this version of d5ray writes: "
                "start a new run instead of continuing this one"
            )
        return len(found) == len(self._header)

    def _lock(self) -> None:
        try:
            import fcntl  # noqa: PLC0415 - not every system has it

            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(
                f"{self._path} is being written by another process: wait for it to end, or start a new run"
            ) from error
        except (OSError, ImportError):  # there are no locks; the run's own name keeps writers apart
            return


def read_stream(path: Path) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Every complete batch of a stream file with the offset of its end; a cut-off end is no error."""
    check_plain(path)
    try:
        opened = pa.OSFile(str(path))
    except PermissionError as error:
        raise not_allowed(path) from error
    with opened as source:
        try:
            reader = pa.ipc.open_stream(source)
            while True:
                batch = reader.read_next_batch()
                batch.validate(full=True)
                yield batch, source.tell()
        except (StopIteration, pa.ArrowInvalid):
            return
        except OSError as error:
            if error.errno is not None:  # the disk's error; that of a cut-off piece has no number
                raise


def read_together(path: Path, schema: pa.Schema, rows_together: int) -> Iterator[pa.RecordBatch]:
    """The rows of a stream file in few batches, of about that many rows, however many small ones it has.

    A batch of one row, such as an event, takes ten thousand bytes in memory while it is one of its own.
    """
    few: list[pa.RecordBatch] = []
    rows = 0
    for batch, _ in read_stream(path):
        few.append(batch)
        rows += batch.num_rows
        if len(few) >= MOST_TOGETHER or rows >= rows_together:
            yield from _together(few, schema)
            few, rows = [], 0
    yield from _together(few, schema)


def _together(batches: list[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if len(batches) <= 1:
        yield from batches
    else:
        yield from pa.Table.from_batches(batches, schema).unify_dictionaries().combine_chunks().to_batches()


def write_parquet(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Writes the tables, one row group each, into one file that is either complete or not there."""
    import pyarrow.parquet as pq  # noqa: PLC0415 (agents that only record never need it)

    # Numbers are seldom equal: a dictionary of them costs time and, when it has grown too large, space.
    words = [f.name for f in schema if pa.types.is_dictionary(f.type) or pa.types.is_string(f.type)]
    with replacing(path) as temporary, temporary.open("wb") as file:
        with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=words) as writer:
            for table in tables:
                writer.write_table(table)
        file.flush()
        os.fsync(file.fileno())
    with storing(path):
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new name itself
        finally:
            os.close(folder)


def read_parquet(path: Path) -> pa.Table:
    """The whole table; FileNotFoundError if there is none, StorageError if it is not a Parquet file."""
    try:
        check_plain(path)
        table = read_parquet_of(path)
        table.validate(full=True)  # texts are UTF-8, and numbers of words within their list
        return table
    except FileNotFoundError:
        raise
    except PermissionError as error:
        raise not_allowed(path) from error
    except (pa.ArrowException, OSError) as error:
        raise StorageError(f"{path} is not a table that d5ray wrote: {first_line(error)}") from error


def not_allowed(path: Path) -> AccessError:
    """The error of a file or folder that this user may not read."""
    return AccessError(
        f"{path} may not be read by this user: let its owner allow it (chmod), or ask as its owner"
    )


def check_plain(path: Path) -> None:
    """Raise `StorageError` for what is there and is no file, such as a pipe, which nobody may ever fill."""
    if path.exists() and not path.is_file():
        raise StorageError(f"{path} is not a file: it must be a table that d5ray wrote")


def read_parquet_of(source: Path | pa.NativeFile) -> pa.Table:
    """The whole table of a file that may be open already."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    with pq.ParquetFile(source) as file:
        return file.read().unify_dictionaries()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a path to write a file or folder to, which gets this name in the end, and not if something fails.

    It has the same ending. Raises `StorageError` where it cannot be written.
    """
    if path.exists() and not path.is_file():  # a device, which root would replace by a file
        raise StorageError(f"{path} is there, and no file: name another place (--out or --output)")
    part = path.with_name(f".{path.name}.{os.getpid()}.part{path.suffix}")
    with storing(path):
        try:
            yield part
            part.replace(path)
        finally:
            if part.is_dir():
                shutil.rmtree(part)
            part.unlink(missing_ok=True)


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turns an OSError into a StorageError that says what to do; `DiskFull` where there is no room."""
    try:
        yield
    except OSError as error:
        if full := _full(path, error.errno):
            raise DiskFull(f"{full}: what was stored before stays readable; {ADVICE}") from error
        told = f"{path} cannot be written ({error.strerror or error}); what was stored before stays readable"
        raise StorageError(f"{told}: {ADVICE}") from error


def when_there_is_room(work: Callable[[], T], seconds: float) -> T:
    """The result of `work`, which is done again while the disk is full; `DiskFull` after these seconds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except DiskFull:
            if time.monotonic() > deadline:
                raise
            time.sleep(ROOM_SECONDS)


def _full(path: Path, number: int | None) -> str:
    """A sentence that says which room is used up by this error of the operating system; "" for others."""
    folder = path if path.is_dir() else path.parent
    if number == errno.EDQUOT:
        return f"the quota of this user on the disk of {folder} is used up"
    if number == errno.EFBIG:
        return f"{path} is as large as a file may be here (look at `ulimit -f`)"
    if number != errno.ENOSPC:
        return ""
    try:
        found = os.statvfs(folder)
    except OSError:
        return f"the disk of {folder} is full"
    if found.f_files and not found.f_favail:
        return f"the disk of {folder} is full (no more files can be made there)"
    return f"the disk of {folder} is full ({found.f_bavail * found.f_frsize} B free)"
