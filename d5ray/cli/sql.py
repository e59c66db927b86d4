"""`d5ray sql`: one query, a shell, statements from a pipe, or a server"""

import re
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from d5ray.checks import check_address, check_count
from d5ray.cli import options
from d5ray.errors import ConfigurationError
from d5ray.failures.exit_codes import INTERRUPTED
from d5ray.metrics.judge import run_series
from d5ray.metrics.queries.run_queries import Queryable
from d5ray.metrics.queries.tokens import token_from
from d5ray.metrics.record.folders import runs_root
from d5ray.metrics.record.store import Run

MOST_ROWS = 1000  # of one query's result that are shown
STATEMENT = re.compile(  # how a query begins, which no name of a run does
    r"\s*(--|/\*|\(|(select|with|from|values|table|describe|show|summarize|explain|pivot|unpivot)\s)",
    re.IGNORECASE,
)

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
    """Query runs with SQL (DuckDB), also while they are going on. Without a query: a shell.

    d5ray sql "select …" asks all runs. Statements may also come from a pipe, separated by semicolons.
    """
    from d5ray.dashboards.sql import output_formats, shell  # noqa: PLC0415 - quick for those who only want help

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
    try:
        if query is None:
            found = partial(_found, token_file=token_file, address=address)
            talk = shell.Shell(asked, found, rows=rows or shell.ROWS, format=format)
            talk.interactive() if sys.stdin.isatty() else talk.piped(sys.stdin)
        else:
            shell.interruptible(asked, lambda: _once(asked, query, format, output, rows, json))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _is_query(text: str) -> bool:
    """True for a statement where a run's name may stand, which no file is called."""
    try:
        return STATEMENT.match(text) is not None and not Path(text).exists()
    except (OSError, ValueError):  # too long for a name
        return True


def _once(
    asked: Queryable, query: str, format: str, output: Path | None, rows: int | None, json: bool
) -> None:
    from d5ray.dashboards.sql import output_formats  # noqa: PLC0415
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
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
    from d5ray.metrics.record.reader import holds_runs  # noqa: PLC0415

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
