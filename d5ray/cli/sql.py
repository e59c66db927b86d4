"""`d5ray sql`: one query, a server, or the line that opens the runs in DuckDB's own shell"""

import re
from pathlib import Path
from typing import Annotated

import typer

from d5ray.checks import check_address, check_count
from d5ray.errors import ConfigurationError
from d5ray.failures.exit_codes import INTERRUPTED
from d5ray.recipes.engine.parsing import options
from d5ray.recipes.engine.parsing.options import reading

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
Rows = Annotated[int | None, typer.Option("--rows", metavar="N", help="Show at most N rows of the table.")]
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


@reading
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
    from d5ray.cli import sql_queries as queries  # noqa: PLC0415 - quick for those who only want help
    from d5ray.dashboards.terminal import output_formats  # noqa: PLC0415
    from d5ray.display.console import write  # noqa: PLC0415

    if query is None and run is not None and _is_query(run):
        run, query = None, run
    if rows is not None:
        check_count("--rows", rows)
    if serve is not None:
        queries.serve(run, serve)
        return
    format = "json" if json else format
    output_formats.check(format, output)
    if output is not None and query is None:
        raise ConfigurationError(f"--output {output} needs a query: d5ray sql RUN QUERY --output {output}")
    asked = queries.found(run, token_file, address)
    if query is None:
        write(f"{queries.opened_by(asked)}\n")
        return
    try:
        queries.interruptible(asked, lambda: queries.answer(asked, query, format, output, rows, json))
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _is_query(text: str) -> bool:
    """True for a statement where a run's name may stand, which no file is called."""
    try:
        return STATEMENT.match(text) is not None and not Path(text).exists()
    except (OSError, ValueError):  # too long for a name
        return True
