"""The queries of `d5ray sql`: of stored runs, of one that is going on, of a server; and the server itself"""

import shlex
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from d5ray.dashboards.terminal import output_formats, run_tables
from d5ray.display.console import err
from d5ray.errors import ConfigurationError
from d5ray.metrics.judge import run_series
from d5ray.metrics.queries.run_queries import Queryable
from d5ray.metrics.queries.sql import quoted
from d5ray.metrics.queries.tokens import token_from
from d5ray.metrics.record.folders import runs_root
from d5ray.metrics.record.reader import Run, holds_runs
from d5ray.metrics.record.schema import TABLES

MOST_ROWS = 1000  # of one query's result that are shown
_PATIENCE = 5.0  # s for a query to end that was interrupted


def found(name: str | None, token_file: Path | None, address: str | None) -> Queryable:
    """The runs to be asked; raises `ConfigurationError` if they are not there."""
    if address is not None:
        from d5ray.actors.metrics.running import running  # noqa: PLC0415 (Ray, for those who need it)

        return running(name or "last", address)
    if name is None:
        root = runs_root()
        if not root.is_dir() or not any(root.iterdir()):
            raise ConfigurationError(f"there are no runs in {root} yet: d5ray run digits_lenet makes one")
        return Run(root)
    if "://" in name:
        return Run(name, token=token_from(token_file) if name.startswith("grpc") else None)
    if token_file is not None:
        raise ConfigurationError("--token-file is for a server, grpc+tcp://HOST:PORT: leave it out here")
    return Run(Path(name)) if name and holds_runs(Path(name)) else run_series.find(name)


def opened_by(asked: Queryable) -> str:
    """The line for a shell that opens the runs in `duckdb`, each table as a view of its files."""
    if isinstance(asked, run_series.RunSeries):
        folders = [run.folder for run in asked.runs]
    else:
        folders = [asked.folder] if isinstance(asked, Run) else []
    if folders and holds_runs(folders[0]):
        folders = sorted(path for path in folders[0].iterdir() if path.is_dir())
    files = {
        name: [file for folder in folders if (file := folder.resolve() / f"{name}.parquet").is_file()]
        for name in TABLES
    }
    if not files["samples"]:
        raise ConfigurationError(
            f"{asked!r} has no finished run in a folder of this machine, which DuckDB could open: give a "
            'query, d5ray sql RUN "select …"'
        )
    views = (
        f"create or replace view {name} as from read_parquet([{', '.join(map(quoted, found))}], "
        "union_by_name = true, hive_partitioning = false);"
        for name, found in files.items()
        if found
    )
    return f"duckdb -cmd {shlex.quote(' '.join(views))}"


def serve(name: str | None, bind: str) -> None:
    """Answer queries of these runs at [HOST:]PORT until Ctrl-C, or SIGTERM."""
    served = found(name, None, None)
    endpoint = served.served(bind)
    ended = threading.Event()
    try:
        err().print(f"{served!r} at {endpoint.location}  token {endpoint.token}")
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        while not ended.wait(1.0):
            pass
    except KeyboardInterrupt:
        pass
    finally:
        endpoint.stop()


def answer(
    asked: Queryable, query: str, format: str, output: Path | None, rows: int | None, json: bool
) -> None:
    """Show the answer of a query, or write it to a file."""
    if json and output is None:
        run_tables.as_json(asked.sql(query).to_pylist())
    elif format == "table":
        run_tables.arrow(asked.sql(query).arrow, rows or MOST_ROWS)
    else:
        with asked.ask(query) as given:
            count = output_formats.write(given, format, output)
        if output is not None:
            err().print(f"{count:,} rows in {output}", style="dim")


def interruptible(run: Queryable, ask: Callable[[], None]) -> None:
    """Run a function on a thread of its own, so that Ctrl-C ends the query and nothing else."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            ask()
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    source, done = run.source, threading.Event()  # joining a thread and Ctrl-C do not go together in 3.11
    threading.Thread(target=work, daemon=True).start()
    try:
        while not done.wait(0.1):
            pass
    except KeyboardInterrupt:
        end = time.monotonic() + _PATIENCE
        source.interrupt()
        while not done.wait(0.1) and time.monotonic() < end:
            source.interrupt()  # again: before it has begun a query cannot be interrupted
        if not done.is_set():  # it goes on alone; the next query gets a connection of its own
            run.close()
        raise
    if failed:
        raise failed[0]
