"""Parts of the agents' steps: computing, communicating, waiting and the rest"""

import pyarrow as pa

from d5ray.metrics.views.time_series import POINTS, Over, X, extent, stretch
from d5ray.metrics.views.view import RunView

TIMES = ("data_time", "forward_time", "backward_time", "exchange_time", "update_time", "record_time")
WAITS = ("server_wait_time", "window_wait_time", "letter_wait_time")
PARTS = ("data", "forward", "backward", "exchange", "wait", "update", "record", "other")  # in their order

READY = "ready_steps"

_METRICS = ", ".join(f"'{name}'" for name in ("step_time", *TIMES, *WAITS))
_WAITS = ", ".join(f"'{name}'" for name in WAITS)
_TOTALS = ", ".join(
    f"coalesce(sum(total) FILTER (metric = '{name}_time'), 0) AS {name}"
    for name in ("step", "data", "forward", "backward", "exchange", "update", "record")
)

# Sums for each agent and stretch. Of agents that meet, who comes last waits for nobody: what the exchange of
# the others took longer is their wait. Agents that do not meet record what they wait for.
_SUMS = f"""
WITH chosen AS (
    SELECT *, floor((x - $low) / $width) AS stretch FROM (
        SELECT metric, rank, step, value, epoch_ns(t_wall) AS ended, {{x}} AS x FROM samples
        WHERE metric IN ({_METRICS}) AND scope = 'agent' AND value IS NOT NULL
    ) WHERE x BETWEEN $low AND $high
), sums AS (
    SELECT rank, stretch, metric, sum(value) AS total, count(*) AS n, max(x) AS x,
        max(ended) AS ended, min(ended - CAST(value * 1e9 AS BIGINT)) AS began
    FROM chosen GROUP BY rank, stretch, metric
), quickest AS (
    SELECT step, min(value) AS least FROM chosen WHERE metric = 'exchange_time' GROUP BY step
), waits AS (
    SELECT rank, stretch, sum(value - least) AS waited FROM chosen JOIN quickest USING (step)
    WHERE metric = 'exchange_time' GROUP BY rank, stretch
), wide AS (
    SELECT rank, stretch, {_TOTALS}, sum(total) FILTER (metric IN ({_WAITS})) AS told,
        max(n) FILTER (metric = 'step_time') AS steps,
        max(x) FILTER (metric = 'step_time') AS x,
        max(ended) FILTER (metric = 'step_time') AS ended,
        min(began) FILTER (metric = 'step_time') AS began
    FROM sums GROUP BY rank, stretch
), parts AS (
    SELECT rank, stretch, x, steps, began, ended, step, data, forward, backward,
        greatest(0, least(exchange, coalesce(told, waited, 0))) AS wait,
        exchange - wait AS exchange, update, record,
        greatest(0, step - data - forward - backward - wide.exchange - update - record) AS other
    FROM wide LEFT JOIN waits USING (rank, stretch) WHERE steps > 0
)
"""
# The same from rows that were put together before, one for each step of an agent: see `prepare`.
_READY = f"""
WITH parts AS (
    SELECT rank, floor((x - $low) / $width) AS stretch, max(x) AS x, count(*) AS steps, min(began) AS began,
        max(ended) AS ended, {", ".join(f"sum({name}) AS {name}" for name in PARTS)}
    FROM (SELECT *, {{x}} AS x FROM {READY}) WHERE x BETWEEN $low AND $high GROUP BY rank, stretch
)
"""
_READY_X = {"step": "CAST(number AS DOUBLE)", "seconds": "(ended - $origin) / 1e9"}
_ONE_STEP = f"""
WITH rows AS (
    SELECT metric, rank, attempt, step AS number, value, epoch_ns(t_wall) AS ended FROM samples
    WHERE metric IN ({_METRICS}) AND scope = 'agent' AND value IS NOT NULL
), wide AS (
    SELECT rank, attempt, number, max(ended) FILTER (metric = 'step_time') AS ended,
        {
    ", ".join(
        f"coalesce(max(value) FILTER (metric = '{name}_time'), 0) AS {name}"
        for name in ("step", "data", "forward", "backward", "exchange", "update", "record")
    )
}, sum(value) FILTER (metric IN ({_WAITS})) AS told
    FROM rows GROUP BY rank, attempt, number
), quickest AS (SELECT number, min(exchange) AS least FROM wide GROUP BY number)
SELECT rank, number, ended, ended - CAST(step * 1e9 AS BIGINT) AS began, data, forward, backward,
    greatest(0, least(exchange, coalesce(told, exchange - quickest.least))) AS wait,
    exchange - wait AS exchange, update, record,
    greatest(0, step - data - forward - backward - wide.exchange - update - record) AS other
FROM wide JOIN quickest USING (number) WHERE ended IS NOT NULL
"""
_MEANS = ", ".join(f"sum({name}) / sum(steps) AS {name}" for name in PARTS)


def prepare(view: RunView) -> None:
    """Put the rows of a finished run together, one for each step of an agent: what asks for parts is quicker.

    In memory, about 100 B a step and agent.
    """
    if not view.running:
        view.make(READY, _ONE_STEP)


def parts(
    view: RunView,
    *,
    over: Over = "step",
    points: int = POINTS,
    low: float | None = None,
    high: float | None = None,
) -> pa.Table:
    """x, data, forward, backward, exchange, wait, update, record, other: seconds, the mean over agents.

    A row for each of at most that many stretches; together they are the time of a step. `wait` is the part of
    the exchange in which an agent waited for others; for agents that meet at every step it is what their
    exchange took longer than that of the last one.
    """
    return _of_parts(
        view, f"SELECT max(x) AS x, {_MEANS} FROM parts GROUP BY stretch ORDER BY x", over, points, low, high
    )


def parts_of_agents(
    view: RunView, *, over: Over = "step", low: float | None = None, high: float | None = None
) -> pa.Table:
    """rank, steps, data, forward, backward, exchange, wait, update, record, other: seconds, mean of steps."""
    query = (
        f"SELECT rank, CAST(sum(steps) AS BIGINT) AS steps, {_MEANS} FROM parts GROUP BY rank ORDER BY rank"
    )
    return _of_parts(view, query, over, 1, low, high)


def stretches_of_agents(
    view: RunView, *, points: int = POINTS, low: float | None = None, high: float | None = None
) -> pa.Table:
    """rank, begin, end, steps, and the parts: seconds, sums over the steps that end in a stretch of time.

    begin, end: seconds since the run began, of the first step's begin and the last one's end.
    """
    query = f"""
        SELECT rank, (began - $origin) / 1e9 AS begin, (ended - $origin) / 1e9 AS end, steps,
            {", ".join(PARTS)}
        FROM parts ORDER BY rank, begin
    """
    return _of_parts(view, query, "seconds", points, low, high)


def _of_parts(
    view: RunView, query: str, over: Over, points: int, low: float | None, high: float | None
) -> pa.Table:
    begin, end = extent(view, "step_time", over).within(low, high)
    given = _READY.format(x=_READY_X[over]) if view.has(READY) else _SUMS.format(x=X[over])
    return view.ask(
        f"{given} {query}",
        origin=view.origin,
        low=begin,
        high=end,
        width=stretch(begin, end, points, over),
    )
