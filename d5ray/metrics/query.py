"""SQL on the tables of a run, through DuckDB."""

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from d5ray.metrics.queries.asked import Asked


def sql(run: "Asked", query: str) -> pa.Table:
    """What `query` selects from samples, runs, metrics, environment, events and verdicts of `run`.

    `summary` has a row for each metric, scope and phase: n, median, ci_lo, ci_hi, p95, cv, outliers, …
    Of a series the tables have the rows of all its runs that came to an end.

    Works while the run is going on. Raises ConfigurationError with DuckDB's message for a wrong query.
    """
    with run.ask(query) as answer:
        return answer.table()


def quoted(file: object) -> str:
    """A path as a text of SQL."""
    text = str(file).replace("'", "''")
    return f"'{text}'"
