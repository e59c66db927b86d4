"""The table of samples with its filters, and SQL on a run"""

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from d5ray.dashboards.page.runs import Shown
from d5ray.errors import D5Error
from d5ray.metrics import query
from d5ray.metrics.views.view import RunView

PAGE_ROWS: Final = 50
MARGIN: Final = 20.0  # times the rows that are wanted are looked at, if they lie evenly in time
MOST_ROWS: Final = 500  # of an answer to SQL
SQL_SECONDS: Final = 20.0
SEARCHED = ("scope", "agent", "node", "status")
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


def _words_with(shown: Shown, text: str) -> list[str]:
    """Of all words that rows have, those with this part; there are few words and many rows."""
    known = [word for name in SEARCHED for word in shown.ask(_distinct, name=name)["word"].to_pylist()]
    return sorted({word for word in known if text.lower() in word.lower()})


def _distinct(view: RunView, name: str) -> pa.Table:
    return view.ask(f"SELECT DISTINCT {name} AS word FROM samples ORDER BY word")


def page(shown: Shown, chosen: Filter, number: int) -> tuple[pa.Table, int]:
    """A page of the rows that a filter lets through, the last rows first; and how many there are."""
    conditions = [
        f"({condition})"
        for given, condition in (
            (chosen.metric, "metric = $metric"),
            (chosen.rank is not None, "rank = $rank"),
            (chosen.phase, "phase = $phase"),
            (chosen.text, " OR ".join(f"list_contains($words, {name})" for name in SEARCHED)),
            (chosen.first is not None, "step >= $first"),
            (chosen.last is not None, "step <= $last"),
        )
        if given
    ]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    given = vars(chosen) | {"words": _words_with(shown, chosen.text) if chosen.text else []}
    span = shown.view.one(
        "SELECT count(*) AS n, min(epoch_ns(t_wall)) AS low, max(epoch_ns(t_wall)) AS high "
        f"FROM samples {where}",
        **given,
    )
    wanted = (number + 1) * PAGE_ROWS
    names = ", ".join(COLUMNS)
    # the last rows lie in the last part of the time: most often it need not be looked for in the rest
    share = min(1.0, MARGIN * wanted / max(1, span["n"]))
    while True:
        since = None if share >= 1.0 else int(span["high"] - share * (span["high"] - span["low"]))
        recent = "" if since is None else f"{'AND' if where else 'WHERE'} epoch_ns(t_wall) >= $since"
        found = shown.view.ask(
            f"SELECT {names} FROM samples {where} {recent} ORDER BY t_wall DESC, rank, metric "
            f"LIMIT {PAGE_ROWS} OFFSET $skip",
            **given,
            since=since,
            skip=number * PAGE_ROWS,
        )
        if since is None or found.num_rows == PAGE_ROWS:
            return found, span["n"]
        share = 1.0


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
