"""SQL on the tables of a run, through DuckDB."""

from collections.abc import Iterable
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa

from d5ray.checks import check_count, check_kind, check_rate
from d5ray.metrics.queries.source import Limits

if TYPE_CHECKING:
    from d5ray.metrics.queries.run_queries import Queryable


def sql(
    run: "Queryable", query: str, *, most_rows: int | None = None, seconds: float | None = None
) -> pa.Table:
    """The rows that `query` selects from samples, runs, metrics, environment, events and verdicts of `run`.

    `summary` has a row for each metric, scope and phase: n, median, ci_lo, ci_hi, p95, cv, outliers, …
    Of a series the tables have the rows of all its runs that came to an end.

    most_rows: of the answer; seconds: after which the query is given up, a ConfigurationError.
    Works while the run is going on. Raises ConfigurationError with DuckDB's message for a wrong query.
    """
    from d5ray.metrics.queries.run_queries import Queryable  # noqa: PLC0415 - which needs this file

    check_kind("run", run, Queryable, 'a run or a series, such as Run("last")')
    check_kind("query", query, str, "a text of SQL")
    if most_rows is not None:
        check_count("most_rows", most_rows)
    if seconds is not None:
        check_rate("seconds", seconds)
    own = nullcontext(run.source) if seconds is None else closing(run.within(Limits(seconds=seconds)))
    with own as source, source.ask(query) as answer:
        return answer.table(most_rows)


def is_pattern(file: object) -> bool:
    """True for a path that DuckDB takes for a pattern of several; let pyarrow read that one."""
    return any(each in str(file) for each in "*?[")


def parquet_of(files: Iterable[object]) -> str:
    """DuckDB's table of the columns in these files alone: of a folder such as `rank=0` it makes a column."""
    return f"read_parquet([{', '.join(map(quoted, files))}], hive_partitioning = false)"


def quoted(file: object) -> str:
    """A path as a text of SQL."""
    text = str(file).replace("'", "''")
    return f"'{text}'"
