"""`d5ray sql`: one query, a server, or the line that opens the runs in DuckDB's own shell"""

import re
import shlex
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from d5ray.checks import check_address, check_count
from d5ray.errors import ConfigurationError
from d5ray.failures.exit_codes import INTERRUPTED
from d5ray.metrics.judge import run_series
from d5ray.metrics.queries.run_queries import Queryable
from d5ray.metrics.queries.sql import quoted
from d5ray.metrics.queries.tokens import token_from
from d5ray.metrics.record.folders import runs_root
from d5ray.metrics.record.reader import holds_runs
from d5ray.metrics.record.schema import TABLES
from d5ray.metrics.record.store import Run
from d5ray.recipes.engine.parsing import options

MOST_ROWS = 1000  # of one query's result that are shown
_PATIENCE = 5.0  # s for a query to end that was interrupted
STATEMENT = re.compile(r"\S*\s|/\*|\(")  # how a query begins, and no name of a run does

Where = Annotated[
    str | None,
    typer.Argument(
        metavar="RUN",
        help="A run or a series, a folder of runs, s3://…, grpc+tcp://HOST:PORT; all runs without it.",
    ),
]
Query = Annotated[
    str | None,
    typer.Argument(
        metavar="QUERY", help="On samples, runs, metrics, environment, events, verdicts, summary."
    ),
]
Format = Annotated[str, typer.Option("--format", help="table, csv, json, arrow or parquet.")]
Output = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", callback=options.target, help="Where to write it.")
]
Rows = Annotated[int | None, typer.Option("--rows", metavar="N", help="Show at most N rows.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        callback=options.source,
        help="With a server's token, such as flight.json; else D5RAY_TOKEN.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        callback=check_address,
        help="Ask a running run of this Ray cluster, HOST:PORT or 'auto'.",
    ),
]
Serve = Annotated[
    str | None,
    typer.Option(metavar="[HOST:]PORT", help="Answer queries by Arrow Flight, with a token, until Ctrl-C."),
]
Json = Annotated[bool, typer.Option("--json", help="The same as --format json.")]


def sql(
    run: Where = None,
    query: Query = None,
    format: Format = "table",
    output: Output = None,
    rows: Rows = None,
    token_file: TokenFile = None,
    address: Address = None,
    serve: Serve = None,
    json: Json = False,
) -> None:
    """Query runs with SQL (DuckDB), also while they are going on.

    d5ray sql "select …" asks all runs. Without a query: the line that opens the runs in DuckDB's own shell.
    """
    from d5ray.dashboards.terminal import output_formats  # noqa: PLC0415 - quick for who only wants help
    from d5ray.display.console import write  # noqa: PLC0415

    if query is None and run is not None and _is_query(run):
        run, query = None, run
    if rows is not None:
        check_count("--rows", rows)
    if serve is not None:
        _serve(run, serve)
        return
    format = "json" if json else format
    output_formats.check(format, output)
    if output is not None and query is None:
        raise ConfigurationError(f"--output {output} needs a query: d5ray sql RUN QUERY --output {output}")
    asked = _found(run, token_file, address)
    if query is None:
        write(f"{opened_by(asked)}\n")
        return
    try:
        _interruptible(asked, lambda: _once(asked, query, format, output, rows, json))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


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


def _is_query(text: str) -> bool:
    """True for a statement where a run's name may stand, which no file is called."""
    try:
        return STATEMENT.match(text) is not None and not Path(text).exists()
    except (OSError, ValueError):  # too long for a name
        return True


def _once(
    asked: Queryable, query: str, format: str, output: Path | None, rows: int | None, json: bool
) -> None:
    from d5ray.dashboards.terminal import output_formats, run_tables  # noqa: PLC0415
    from d5ray.display.console import err  # noqa: PLC0415

    if json and output is None:
        run_tables.as_json(asked.sql(query).to_pylist())
    elif format == "table":
        run_tables.arrow(asked.sql(query).arrow, rows or MOST_ROWS)
    else:
        with asked.ask(query) as answer:
            count = output_formats.write(answer, format, output)
        if output is not None:
            err().print(f"{count:,} rows in {output}", style="dim")


def _interruptible(run: Queryable, ask: Callable[[], None]) -> None:
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


def _found(name: str | None, token_file: Path | None, address: str | None) -> Queryable:
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


def _serve(name: str | None, bind: str) -> None:
    from d5ray.display.console import err  # noqa: PLC0415

    served = _found(name, None, None)
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
