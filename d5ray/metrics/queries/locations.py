"""Sources of the runs that a text names: a folder here, a file system elsewhere, a server"""

from pathlib import Path
from typing import Any

from pyarrow import fs

from d5ray.errors import ConfigurationError, first_line
from d5ray.metrics.queries.database import Database
from d5ray.metrics.queries.source import Limits, QuerySource
from d5ray.metrics.queries.stored_runs import StoredRuns

FLIGHT = ("grpc://", "grpc+tcp://", "grpc+tls://", "grpc+unix://")


def source_at(where: str, token: str | None = None, limits: Limits | None = None) -> QuerySource:
    """The source for an address such as s3://bucket/runs or grpc+tcp://host:port.

    Raises `ConfigurationError` for one that nothing here can read.
    """
    if where.startswith(FLIGHT):
        from d5ray.metrics.queries.flight_client import FlightSource  # noqa: PLC0415 (a server's users)

        return FlightSource(where, token)
    if token is not None:
        raise ConfigurationError(f"{where}: a token is for a server, grpc+tcp://HOST:PORT: leave it out here")
    files, base = _system(where)
    shown = where.partition("?")[0]  # what follows may be secret
    return Database(StoredRuns(files, base, shown, local=False), limits)


def source_in(folder: Path, limits: Limits | None = None) -> Database:
    """The source for a run's folder, or a folder of runs, on this machine."""
    return Database(StoredRuns(fs.LocalFileSystem(), str(folder.resolve()), str(folder), local=True), limits)


def _system(where: str) -> tuple[Any, str]:
    """A file system of pyarrow, or else of fsspec, and the path in it."""
    try:
        found: tuple[Any, str] = fs.FileSystem.from_uri(where)
        return found
    except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
        unknown = first_line(error)
    try:
        import fsspec  # noqa: PLC0415 (only where pyarrow knows nothing)

        system, base = fsspec.core.url_to_fs(where)
        return fs.PyFileSystem(fs.FSSpecHandler(system)), base
    except ImportError as error:
        raise ConfigurationError(
            f"{where} cannot be opened: {unknown}; fsspec: {first_line(error)}"
        ) from error
    except (ValueError, OSError) as error:
        raise ConfigurationError(
            f"{where.partition('?')[0]} cannot be opened: {unknown}: give a folder, or an address "
            "such as file:///runs, s3://bucket/runs, gs://bucket/runs, grpc+tcp://HOST:PORT"
        ) from error
