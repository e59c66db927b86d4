"""Time series of metrics, thinned to as many points as a picture has: nothing that sticks out is lost"""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from d5ray.metrics.views.view import RunView

Over = Literal["step", "seconds"]
X = {"step": "CAST(step AS DOUBLE)", "seconds": "(epoch_ns(t_wall) - $origin) / 1e9"}  # of a row of samples
POINTS = 400


@dataclass(frozen=True)
class Extent:
    """The extent of a metric's rows; None where there are none."""

    low: float | None
    high: float | None
    rows: int

    def within(self, low: float | None, high: float | None) -> tuple[float, float]:
        """The part of the extent between two bounds, where they are given."""
        begin, end = self.low or 0.0, self.high or 0.0
        return (begin if low is None else max(low, begin)), (end if high is None else min(high, end))


def metrics(view: RunView) -> pa.Table:
    """metric, unit, rows, and whether rows have steps: of all metrics that have values."""
    return view.ask(
        "SELECT metric, any_value(unit) AS unit, count(*) AS rows, count(step) > 0 AS stepwise "
        "FROM samples WHERE value IS NOT NULL GROUP BY metric ORDER BY metric"
    )


def extent(view: RunView, metric: str, over: Over = "step") -> Extent:
    """The extent of a metric's rows, over steps or time."""
    found = view.one(
        f"SELECT min(x) AS low, max(x) AS high, count(x) AS rows "
        f"FROM (SELECT {X[over]} AS x FROM samples WHERE metric = $metric AND value IS NOT NULL)",
        origin=view.origin,
        metric=metric,
    )
    return Extent(found["low"], found["high"], found["rows"])


def thinned(
    view: RunView,
    metric: str,
    *,
    over: Over = "step",
    points: int = POINTS,
    low: float | None = None,
    high: float | None = None,
    together: bool = False,
) -> pa.Table:
    """rank, scope, x, first, least, mean, greatest, last, n, bad, in at most that many stretches.

    x: where the stretch's last value stands, in steps or in seconds since the run began; first: where
    it begins; last: the value at its end; bad: how many values are no finite numbers, and in none of the
    figures. low, high: only what lies between. together: of all agents; then rank is null, and x and last are
    those of whoever came last.
    """
    begin, end = extent(view, metric, over).within(low, high)
    return view.ask(
        f"""
        WITH rows AS (
            SELECT {"CAST(NULL AS INTEGER)" if together else "rank"} AS rank, scope, {X[over]} AS x, value
            FROM samples WHERE metric = $metric AND value IS NOT NULL
        )
        SELECT rank, scope, max(x) AS x, min(x) AS first,
            min(value) FILTER (isfinite(value)) AS least,
            avg(value) FILTER (isfinite(value)) AS mean,
            max(value) FILTER (isfinite(value)) AS greatest,
            arg_max(value, x) FILTER (isfinite(value)) AS last,
            count(*) AS n, count(*) FILTER (NOT isfinite(value)) AS bad
        FROM rows WHERE x BETWEEN $low AND $high
        GROUP BY rank, scope, floor((x - $low) / $width) ORDER BY rank, scope, x
        """,
        origin=view.origin,
        metric=metric,
        low=begin,
        high=end,
        width=stretch(begin, end, points, over),
    )


def evaluations(view: RunView, metric: str, *, points: int = POINTS) -> pa.Table:
    """rank, step, seconds, value: what every agent evaluated after which step, at most so many steps.

    seconds: since the run began. Of more evaluations every k-th is taken, and the last; what is no finite
    number is left out, and of a step that an agent did twice the later value counts.
    """
    return view.ask(
        f"""
        WITH rows AS (
            SELECT rank, step, {X["seconds"]} AS seconds, value FROM samples
            WHERE metric = $metric AND scope = 'agent' AND step IS NOT NULL AND isfinite(value)
        ), counted AS (
            SELECT step, row_number() OVER (ORDER BY step DESC) - 1 AS place, count(*) OVER () AS steps
            FROM (SELECT DISTINCT step FROM rows)
        )
        SELECT rank, step, max(seconds) AS seconds, arg_max(value, seconds) AS value
        FROM rows JOIN counted USING (step) WHERE place % CAST(ceil(steps / $points) AS BIGINT) = 0
        GROUP BY rank, step ORDER BY rank, step
        """,
        origin=view.origin,
        metric=metric,
        points=float(points),
    )


def throughput(
    view: RunView,
    *,
    over: Over = "seconds",
    points: int = POINTS,
    low: float | None = None,
    high: float | None = None,
) -> pa.Table:
    """x, rate: training samples a second of all agents together, by the clock on the wall.

    What passes between two steps, such as an evaluation, counts as time.
    """
    begin, end = extent(view, "samples", over).within(low, high)
    return view.ask(
        f"""
        WITH rows AS (
            SELECT {X[over]} AS x, epoch_ns(t_wall) AS ended, value FROM samples
            WHERE metric = 'samples' AND value IS NOT NULL
        ), buckets AS (
            SELECT floor((x - $low) / $width) AS bucket, max(x) AS x, max(ended) AS until,
                sum(value) AS samples
            FROM rows WHERE x BETWEEN $low AND $high GROUP BY bucket
        ), timed AS (
            SELECT x, samples, (until - lag(until) OVER (ORDER BY bucket)) / 1e9 AS seconds FROM buckets
        )
        SELECT x, samples / seconds AS rate FROM timed WHERE seconds > 0 ORDER BY x
        """,
        origin=view.origin,
        low=begin,
        high=end,
        width=stretch(begin, end, points, over),
    )


def stretch(low: float, high: float, points: int, over: Over) -> float:
    """The length of one of that many stretches; of whole steps."""
    if over == "step":
        return float(max(1, -(-int(high - low + 1) // points)))
    return max((high - low) / points, 1e-9) * (1 + 1e-9)
