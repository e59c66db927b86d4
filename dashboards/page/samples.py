"""The table of samples with its filters, and SQL on a run"""

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from d5ray.dashboards.page.runs import Shown
from d5ray.errors import D5Error
from d5ray.metrics import query
from d5ray.metrics.views.view import RunView

PAGE_ROWS: Final = 50
MOST_ROWS: Final = 500  # of an answer to SQL
SQL_SECONDS: Final = 20.0
COLUMNS = {
    "step": "step", "epoch": "epoch", "rank": "rank", "metric": "metric", "value": "value", "unit": "unit",
    "phase": "phase", "scope": "scope", "status": "status", "t_wall": "time (UTC)",
}  # fmt: skip


@dataclass(frozen=True)
class Filter:
    """What rows of samples are looked at; None or empty: all."""

    metric: str | None = None
    rank: int | None = None
    phase: str | None = None
    text: str = ""  # a part of scope, agent, node or status
    first: int | None = None
    last: int | None = None


def words(shown: Shown) -> dict[str, list[Any]]:
    """The metrics, ranks and phases that can be chosen."""
    return {name: shown.ask(_distinct, name=name)["word"].to_pylist() for name in ("metric", "rank", "phase")}


def _distinct(view: RunView, name: str) -> pa.Table:
    return view.ask(f"SELECT DISTINCT {name} AS word FROM samples ORDER BY word")


def page(shown: Shown, chosen: Filter, number: int) -> tuple[pa.Table, int]:
    """A page of the rows that a filter lets through, the last rows first; and how many there are."""
    conditions = [
        condition
        for given, condition in (
            (chosen.metric, "metric = $metric"),
            (chosen.rank is not None, "rank = $rank"),
            (chosen.phase, "phase = $phase"),
            (chosen.text, "contains(lower(concat_ws(' ', scope, agent, node, status)), lower($text))"),
            (chosen.first is not None, "step >= $first"),
            (chosen.last is not None, "step <= $last"),
        )
        if given
    ]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    given = vars(chosen)
    (rows,) = shown.view.ask(f"SELECT count(*) AS n FROM samples {where}", **given)["n"].to_pylist()
    names = ", ".join(COLUMNS)
    found = shown.view.ask(
        f"SELECT {names} FROM samples {where} ORDER BY t_wall DESC, rank, metric "
        f"LIMIT {PAGE_ROWS} OFFSET $skip",
        **given,
        skip=number * PAGE_ROWS,
    )
    return found, rows


def answer(shown: Shown, text: str) -> tuple[pa.Table | None, str]:
    """What a query selects, or why it does not: nothing is written by it, and no other file is read."""
    if not text.strip():
        return None, "write a SELECT on samples, events, runs, metrics, environment, verdicts or summary"
    try:
        found = query.sql(shown.view.run, text, most_rows=MOST_ROWS + 1, seconds=SQL_SECONDS)
    except D5Error as error:
        return None, str(error)
    more = found.num_rows > MOST_ROWS
    told = f"the first {MOST_ROWS} rows" if more else f"{found.num_rows:,} row{'s' * (found.num_rows != 1)}"
    return found.slice(0, MOST_ROWS), told
