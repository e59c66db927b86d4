"""The answer of a query as a file or in a pipe: CSV, JSON, Arrow or Parquet, batch by batch"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from d5ray.display import console
from d5ray.errors import ConfigurationError, nearest
from d5ray.metrics.queries.source import Answer
from d5ray.metrics.record.files import replacing

TEXT = ("csv", "json")
FORMATS = ("table", *TEXT, "arrow", "parquet")


def check(format: str, output: Path | None) -> None:
    """Raise `ConfigurationError` for a format that is none, or one that a terminal cannot show."""
    if format not in FORMATS:
        raise ConfigurationError(f"--format {format}: there is no such format: {nearest(format, FORMATS)}")
    if output is None and format not in ("table", *TEXT):
        raise ConfigurationError(f"--format {format} is for a file: name it with --output FILE")
    if output is not None and format == "table":
        raise ConfigurationError(f"--output {output} needs a format: --format csv, json, arrow or parquet")
    if output is not None and output.exists():
        raise ConfigurationError(f"{output} exists: name another file, or remove it")


def write(answer: Answer, format: str, output: Path | None) -> int:
    """Write all rows to the file, which appears as a whole, or to standard output; gives their number."""
    if output is None:
        return _WRITERS[format](answer, console.data())
    with replacing(output) as part, part.open("wb") as file:
        return _WRITERS[format](answer, file)


def _counted(answer: Answer, write: Callable[[pa.RecordBatch], object]) -> int:
    rows = 0
    for batch in answer.batches:
        write(batch)
        rows += batch.num_rows
    return rows


def _csv(answer: Answer, file: IO[bytes]) -> int:
    from pyarrow import csv  # noqa: PLC0415 (for those who want it)

    try:
        with csv.CSVWriter(file, answer.schema) as writer:
            return _counted(answer, writer.write_batch)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ConfigurationError(f"CSV cannot hold this: {error}: take --format json") from error


def _json(answer: Answer, file: IO[bytes]) -> int:
    """A list of objects, one on each line."""
    rows = 0
    for row in _rows(answer):
        file.write(b",\n" if rows else b"[\n")
        file.write(json.dumps(console.finite(row), default=str, allow_nan=False).encode())
        rows += 1
    file.write(b"\n]\n" if rows else b"[]\n")
    file.flush()
    return rows


def _rows(answer: Answer) -> Iterator[dict[str, Any]]:
    for batch in answer.batches:
        yield from batch.to_pylist()


def _arrow(answer: Answer, file: IO[bytes]) -> int:
    with pa.ipc.new_file(file, answer.schema) as writer:
        return _counted(answer, writer.write_batch)


def _parquet(answer: Answer, file: IO[bytes]) -> int:
    import pyarrow.parquet as pq  # noqa: PLC0415

    with pq.ParquetWriter(file, answer.schema, compression="zstd") as writer:
        return _counted(answer, writer.write_batch)


_WRITERS: dict[str, Callable[[Answer, IO[bytes]], int]] = {
    "csv": _csv, "json": _json, "arrow": _arrow, "parquet": _parquet,
}  # fmt: skip
