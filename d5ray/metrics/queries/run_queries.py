"""Queries that every run answers, wherever it is: its tables, samples with filters, SQL, a summary"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, final

import pyarrow as pa

from d5ray.display import notebook_html
from d5ray.errors import ConfigurationError, D5Error, nearest
from d5ray.metrics.judge.summary import SUMMARY
from d5ray.metrics.queries.notebook_table import Table
from d5ray.metrics.queries.source import Answer, Limits, QuerySource
from d5ray.metrics.record.schema import TABLES
from d5ray.metrics.views.notebook import criteria

if TYPE_CHECKING:
    from d5ray.metrics.queries.flight import FlightEndpoint

SERVED_SECONDS = 60.0
MOST_SHOWN = 20  # runs in a notebook
_RUNS = ("run_id", "recipe", "status", "verdict", "agents", "steps", "seed", "started")


class Queryable(ABC):
    """Tables that answer. What answers is made when it is first asked, and kept."""

    _kept: QuerySource | None = None

    @abstractmethod
    def _source(self, limits: Limits | None = None) -> QuerySource:
        """The source that answers, within these limits."""

    @final
    def served(self, bind: str = "0") -> "FlightEndpoint":
        """Answer queries by Arrow Flight at PORT or HOST:PORT, until `stop`; a query has a minute."""
        from d5ray.metrics.queries.flight import FlightEndpoint  # noqa: PLC0415 (if it is wanted)

        return FlightEndpoint(lambda: self._source(Limits(seconds=SERVED_SECONDS)), bind).start()

    @final
    @property
    def source(self) -> QuerySource:
        """The source that answers: its `ask` gives the rows of a query as they come."""
        if self._kept is None:
            self._kept = self._source()
        return self._kept

    @final
    def within(self, limits: Limits) -> QuerySource:
        """A source beside this one that answers within these limits, which the caller closes."""
        return self._source(limits)

    @final
    def ask(self, query: str) -> AbstractContextManager[Answer]:
        """The rows of a query batch by batch, for results that are larger than memory."""
        return self.source.ask(query)

    @final
    def sql(self, query: str) -> Table:
        """The rows of a SELECT from samples, runs, metrics, environment, events, verdicts and summary.

        Raises `ConfigurationError` with DuckDB's message for a wrong query.
        """
        with self.ask(query) as answer:
            return Table(answer.table())

    @final
    def table(self, name: str, columns: Sequence[str] | None = None, where: str | None = None) -> Table:
        """A table of the run, or those columns of it; where: a condition in SQL."""
        known = {**TABLES, "summary": SUMMARY}
        if name not in known:
            raise ConfigurationError(f"There is no table {name!r}: {nearest(name, known)}")
        schema = known[name]
        wanted = schema.names if columns is None else list(columns)
        for column in wanted:
            _check_column(name, column, schema.names)
        listed = ", ".join(f'"{column}"' for column in wanted)
        with self.ask(f"SELECT {listed} FROM {name}" + (f" WHERE {where}" if where else "")) as answer:
            fitting = pa.schema([schema.field(column) for column in wanted])
            return Table(pa.Table.from_batches([batch.cast(fitting) for batch in answer.batches], fitting))

    @final
    def samples(
        self, *, columns: Sequence[str] | None = None, where: str | None = None, **equal: Any
    ) -> Table:
        """The rows of `samples`: `run.samples(metric="step_time", rank=[0, 1], columns=["step", "value"])`.

        equal: what columns have, one value or several; where: a further condition in SQL. Only what is asked
        for is read. Raises `ConfigurationError` for a column, or a value of one, that there is none of.
        """
        names = TABLES["samples"].names
        for column in equal:
            _check_column("samples", column, names)
        conditions = [_condition(column, value) for column, value in equal.items()]
        found = self.table(
            "samples", columns, " AND ".join([*conditions, *([f"({where})"] if where else [])])
        )
        if not len(found):
            for column in ("run_id", "agent", "node", "metric", "scope", "phase"):
                if column in equal:
                    self._check_there(column, equal[column])
        return found

    @final
    def to_pandas(
        self, *, columns: Sequence[str] | None = None, where: str | None = None, **equal: Any
    ) -> Any:
        """`samples(…)` as a pandas.DataFrame."""
        return self.samples(columns=columns, where=where, **equal).to_pandas()

    @final
    def summary(self) -> Table:
        """A row for each run, metric, scope and phase: n, median, ci_lo, ci_hi, p95, cv, outliers, …"""
        return self.table("summary")

    @final
    def close(self) -> None:
        """Let go of files and connections; the next question opens them again."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_kept"}

    def _repr_html_(self) -> str:
        try:
            return self._notebook_view()
        except D5Error as error:
            return notebook_html.block(notebook_html.title(repr(self)), notebook_html.small(error))

    def _notebook_view(self) -> str:
        columns = ", ".join(_RUNS)
        runs = self.sql(
            f"SELECT {columns} FROM runs ORDER BY started DESC, run_id LIMIT {MOST_SHOWN}"
        ).to_pylist()
        (counts,) = self.sql("SELECT count(*) AS samples FROM samples").to_pylist()
        (many,) = self.sql("SELECT count(*) AS n FROM runs").to_pylist()
        for row in runs:
            row |= {"verdict": notebook_html.word(row["verdict"]), "status": self._status(row)}
            row["started"] = f"{row['started']:%Y-%m-%d %H:%M:%S}" if row["started"] else "–"
        parts = [notebook_html.table(_RUNS, [[row[name] for name in _RUNS] for row in runs])]
        if many["n"] == 1:
            parts.insert(0, notebook_html.title(runs[0]["run_id"], runs[0]["verdict"]))
        else:
            parts.insert(0, notebook_html.title(f"{many['n']} runs"))
            if many["n"] > len(runs):
                parts.append(notebook_html.small(f"the latest {len(runs)} of {many['n']} runs are shown"))
        joint = "" if many["n"] == 1 else " WHERE run_id = ''"
        if verdicts := self.sql(f"SELECT * FROM verdicts{joint}").to_pylist():
            parts.append(criteria(verdicts))
        parts.append(
            notebook_html.small(f"{counts['samples']:,} samples · .sql(query) .samples() .summary()")
        )
        return notebook_html.block(*parts)

    def _status(self, row: dict[str, Any]) -> str:
        return str(row["status"])

    def _check_there(self, column: str, given: Any) -> None:
        """Raise for a value that the run has not got at all."""
        there = self.sql(f"SELECT DISTINCT {column} AS v FROM samples")["v"].to_pylist()
        for value in [given] if isinstance(given, str) or not isinstance(given, Iterable) else given:
            if value not in there:
                raise ConfigurationError(
                    f"samples has no {column} {value!r}: {nearest(value, map(str, there))}"
                )


def _check_column(table: str, column: str, names: Sequence[str]) -> None:
    if column not in names:
        raise ConfigurationError(f"The table {table!r} has no column {column!r}: {nearest(column, names)}")


def _condition(column: str, value: Any) -> str:
    if isinstance(value, str) or not isinstance(value, Iterable):
        return f'"{column}" IS NULL' if value is None else f'"{column}" = {_literal(value)}'
    values = [_literal(each) for each in value]
    return f'"{column}" IN ({", ".join(values)})' if values else "false"


def _literal(value: Any) -> str:
    if isinstance(value, (bool, int, float)):
        return repr(value)
    text = str(value).replace("'", "''")
    return f"'{text}'"
