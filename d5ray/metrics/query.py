"""SQL on the tables of a run, through DuckDB."""

import pyarrow as pa

from d5ray.errors import ConfigurationError
from d5ray.metrics.reader import Run

# A query sees the run's tables and nothing else: no file, no variable of the calling program.
_CLOSED = (
    "SET enable_external_access = false",
    "SET python_enable_replacements = false",
    "SET TimeZone = 'UTC'",
    "SET lock_configuration = true",
)


def sql(run: Run, query: str) -> pa.Table:
    """What `query` selects from samples, runs, metrics, environment, events and verdicts of `run`.

    Works while the run is going on. Raises ConfigurationError with DuckDB's message for a wrong query.
    """
    import duckdb  # noqa: PLC0415 (loaded by those who ask)

    with duckdb.connect(":memory:") as connection:
        for name, table in run.tables().items():
            connection.register(name, table)
        for setting in _CLOSED:
            connection.execute(setting)
        try:
            relation = connection.sql(query)
            if relation is None:
                raise ConfigurationError(f"The query {query!r} has no result: write a SELECT")
            return relation.to_arrow_table()
        except duckdb.Error as error:
            raise ConfigurationError(f"The query failed. {error}") from error
