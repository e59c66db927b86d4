"""A run in a few figures"""

from typing import Any

from d5ray.metrics.views.time_series import extent
from d5ray.metrics.views.view import RunView


def figures(view: RunView) -> dict[str, Any]:
    """The figures of a run by name, as it is now; None where something was not measured.

    seconds: from the first row to the last. loss: the mean over agents at their last steps. test_accuracy,
    validation_accuracy: the worst agent's at the last evaluation. step_time: the median over steps and
    agents, warm-up left out. samples_per_second: from the begin of the first step to the end of the last.
    bytes_sent: by all agents.
    """
    row = view.row
    steps = extent(view, "step_time")
    last = view.one(
        "SELECT avg(value) AS loss FROM (SELECT arg_max(value, step) AS value FROM samples "
        "WHERE metric = 'loss' AND value IS NOT NULL GROUP BY rank)"
    )
    median = view.one(
        "SELECT median(value) AS value FROM samples "
        "WHERE metric = 'step_time' AND phase <> 'warmup' AND value IS NOT NULL"
    )
    sent = view.one("SELECT sum(value) AS value FROM samples WHERE metric = 'bytes_sent'")
    rate = view.one(
        "SELECT sum(value) FILTER (metric = 'samples') * 1e9 / nullif(max(epoch_ns(t_wall)) - "
        "min(epoch_ns(t_wall) - CAST(value * 1e9 AS BIGINT)) FILTER (metric = 'step_time'), 0) AS value "
        "FROM samples WHERE metric IN ('samples', 'step_time')"
    )
    whole = view.one(
        "SELECT count(*) AS rows, (max(epoch_ns(t_wall)) - $origin) / 1e9 AS seconds FROM samples",
        origin=view.origin,
    )
    return {
        "run": view.name,
        **{name: row[name] for name in ("status", "verdict", "recipe", "recipe_hash", "seed", "agents")},
        "steps": None if steps.high is None else int(steps.high) + 1,
        "seconds": whole.get("seconds"),
        "rows": whole.get("rows"),
        "loss": last.get("loss"),
        **{metric: _worst(view, metric) for metric in ("test_accuracy", "validation_accuracy")},
        "step_time": median.get("value"),
        "samples_per_second": rate.get("value"),
        "bytes_sent": sent.get("value"),
    }


def evaluated(view: RunView) -> str:
    """The accuracy that a run evaluates as it trains: of the validation split where there is one."""
    found = view.one("SELECT count(*) AS rows FROM samples WHERE metric = 'validation_accuracy'")
    return "validation_accuracy" if found["rows"] else "test_accuracy"


def _worst(view: RunView, metric: str) -> Any:
    """The worst agent's at the last evaluation, or None."""
    return view.one(
        "SELECT step, min(value) AS value FROM samples WHERE metric = $metric AND value IS NOT NULL "
        "GROUP BY step ORDER BY step DESC",
        metric=metric,
    ).get("value")
