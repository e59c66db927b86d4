"""Load balance: the busiest agent's time of a step over the mean of all"""

from typing import final

import numpy as np
import numpy.typing as npt

from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.estimates import Floats, Rows, edges_of, last_of_each, over_steps
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.metrics.statistics.time_series import Quotient

Keys = npt.NDArray[np.void]  # records of run, step, rank


@final
class Imbalance(Metric):
    """Σ over steps of the busiest agent's own time / Σ of the agents' mean: 1 is even.

    An agent's own time of a step is all of it but the exchange, in which it waits for the others. That of
    parameter servers is `LoadBalance`.
    """

    name = "imbalance"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "largest over mean of the ranks, sum over steps over sum over steps"
    description = "the busiest agent's time of a step without the exchange, as a multiple of the mean"

    def reads(self) -> tuple[str, ...]:
        return ("step_time", "exchange_time")

    def estimate(self, run: RunTables) -> Estimate:
        whole, exchange = Rows(run, "step_time", "train"), Rows(run, "exchange_time", "train")
        for rows, name in zip((whole, exchange), self.reads(), strict=True):
            if not len(rows):
                return Estimate(None, reason=rows.why_none(name))
        keys, seconds = _by_rank(whole)
        others, waiting = _by_rank(exchange)
        _, at, of = np.intersect1d(keys, others, assume_unique=True, return_indices=True)
        if not len(at):
            return Estimate(None, reason="unavailable: no step has both its time and that of its exchange")
        runs, steps, own = keys["run"][at], keys["step"][at], seconds[at] - waiting[of]
        edges = edges_of(runs, steps)
        most = np.maximum.reduceat(own, edges[:-1])
        mean = np.add.reduceat(own, edges[:-1]) / np.diff(edges)
        return over_steps(runs[edges[:-1]], Quotient(most, mean, otherwise=1.0), "steps")


def _by_rank(rows: Rows) -> tuple[Keys, Floats]:
    """(run, step, rank) of every step of every rank, its last attempt, in this order; and its value."""
    last = last_of_each(rows.run, rows.step, rows.rank)
    keys = np.empty(len(last), dtype=[("run", np.int64), ("step", np.int64), ("rank", np.int64)])
    keys["run"], keys["step"], keys["rank"] = rows.run[last], rows.step[last], rows.rank[last]
    return keys, rows.value[last]
