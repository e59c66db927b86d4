"""SQL on the tables of a run, through DuckDB."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from d5ray.errors import ConfigurationError
from d5ray.metrics.reader import Run
from d5ray.metrics.series import Series
from d5ray.metrics.summary import summary

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# A query sees the run's tables and nothing else: no other file, no variable of the calling program.
_CLOSED = (
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET TimeZone = 'UTC'",
    "SET lock_configuration = true",
)
LARGE = ("samples", "events")  # of a finished run read from their files, as far as a query needs them


def sql(run: Run | Series, query: str) -> pa.Table:
    """What `query` selects from samples, runs, metrics, environment, events and verdicts of `run`.

    `summary` has a row for each metric, scope and phase: n, median, ci_lo, ci_hi, p95, cv, outliers, …
    Of a series the tables have the rows of all its runs that came to an end.

    Works while the run is going on. Raises ConfigurationError with DuckDB's message for a wrong query.
    """
    import duckdb  # noqa: PLC0415 (loaded by those who ask)

    with duckdb.connect(":memory:") as connection:
        try:
            files = run.finished(LARGE) if isinstance(run, Run) and _only_reads(connection, query) else {}
            for name, file in files.items():
                connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet({quoted(file)})")
            tables = run.tables(without=tuple(files)) if isinstance(run, Run) else run.tables()
            for name, table in tables.items():
                connection.register(name, table)
            if re.search(r"\bsummary\b", query, re.IGNORECASE):
                connection.register("summary", summary(run.tables()))
            allowed = ", ".join(map(quoted, files.values()))
            connection.execute(f"SET allowed_paths = [{allowed}]")
            for setting in _CLOSED:
                connection.execute(setting)
            relation = connection.sql(query)
            if relation is None:
                raise ConfigurationError(f"The query {query!r} has no result: write a SELECT")
            return relation.to_arrow_table()
        except duckdb.Error as error:
            raise ConfigurationError(f"The query failed. {error}") from error


def _only_reads(connection: "DuckDBPyConnection", query: str) -> bool:
    """Whether it is a SELECT: anything else, such as COPY, must not come near the files themselves."""
    from duckdb import StatementType  # noqa: PLC0415

    kinds = {statement.type for statement in connection.extract_statements(query)}
    return kinds == {StatementType.SELECT}


def quoted(file: Path) -> str:
    """A path as a text of SQL."""
    text = str(file).replace("'", "''")
    return f"'{text}'"
