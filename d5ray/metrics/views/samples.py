"""The rows of samples themselves, filtered and page by page"""

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from d5ray.metrics.views.view import RunView

PAGE_ROWS: Final = 50
MARGIN: Final = 20.0  # times the rows that are wanted are looked at, if they lie evenly in time
SEARCHED = ("scope", "agent", "node", "status")
COLUMNS = ("step", "epoch", "rank", "metric", "value", "unit", "phase", "scope", "status", "t_wall")


@dataclass(frozen=True)
class Filter:
    """A choice of rows; None or empty: all.

    text: a part of the scope, the agent, the node or the status
    """

    metric: str | None = None
    rank: int | None = None
    phase: str | None = None
    text: str = ""
    first: int | None = None  # step
    last: int | None = None

    @property
    def where(self) -> str:
        """The filter as SQL."""
        chosen = (
            (self.metric, "metric = $metric"),
            (self.rank is not None, "rank = $rank"),
            (self.phase, "phase = $phase"),
            (self.text, " OR ".join(f"list_contains($words, {name})" for name in SEARCHED)),
            (self.first is not None, "step >= $first"),
            (self.last is not None, "step <= $last"),
        )
        return " AND ".join(["true", *(f"({condition})" for given, condition in chosen if given)])

    def given(self, view: RunView) -> dict[str, Any]:
        """The parameters of the filter's SQL. Words are few and rows many: the words are looked through."""
        words = [word for name in SEARCHED for word in distinct(view, name)] if self.text else []
        return vars(self) | {"words": sorted({word for word in words if self.text.lower() in word.lower()})}


def distinct(view: RunView, column: str) -> list[Any]:
    """The different values of a column."""
    found = view.ask(f"SELECT DISTINCT {column} AS word FROM samples ORDER BY word")
    return list(found["word"].to_pylist())


def span(view: RunView, chosen: Filter) -> dict[str, Any]:
    """n, low, high: how many rows a filter lets through, and between which moments (ns) they lie."""
    return view.one(
        "SELECT count(*) AS n, min(epoch_ns(t_wall)) AS low, max(epoch_ns(t_wall)) AS high "
        f"FROM samples WHERE {chosen.where}",
        **chosen.given(view),
    )


def page(view: RunView, chosen: Filter, number: int, known: dict[str, Any]) -> pa.Table:
    """The number-th `PAGE_ROWS` of these rows, the last ones first. known: their `span`.

    The last rows lie in the last part of the time; most often the rest need not be looked at.
    """
    share = min(1.0, MARGIN * (number + 1) * PAGE_ROWS / max(1, known["n"]))
    given = chosen.given(view)
    while True:
        since = None if share >= 1.0 else int(known["high"] - share * (known["high"] - known["low"]))
        recent = "" if since is None else " AND epoch_ns(t_wall) >= $since"
        found = view.ask(
            f"SELECT {', '.join(COLUMNS)} FROM samples WHERE {chosen.where}{recent} "
            f"ORDER BY t_wall DESC, rank, metric LIMIT {PAGE_ROWS} OFFSET $skip",
            **given,
            since=since,
            skip=number * PAGE_ROWS,
        )
        if since is None or found.num_rows == PAGE_ROWS:
            return found
        share = 1.0
