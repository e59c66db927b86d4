"""Cost of a run in money, by prices that the user gives"""

from dataclasses import dataclass
from typing import final

import numpy as np
import pyarrow.compute as pc

from d5ray.checks import check_number
from d5ray.errors import ConfigurationError
from d5ray.metrics.definitions.resources import Energy, node_seconds
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.estimates import of_each_run
from d5ray.metrics.statistics.intervals import Estimate

HOUR = 3600.0  # s
KILOWATT_HOUR = 3.6e6  # J


@final
@dataclass(frozen=True)
class PriceTable:
    """Prices in one currency; None: it is not known, and nothing is made up for it.

    node_per_hour      of a node, for every hour that it is in use
    per_kilowatt_hour  of energy; None where the price of the node includes it
    """

    node_per_hour: float | None = None
    per_kilowatt_hour: float | None = None
    currency: str = "EUR"

    def __post_init__(self) -> None:
        for name in ("node_per_hour", "per_kilowatt_hour"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), low=0.0, low_included=True)
        if not isinstance(self.currency, str) or not self.currency:
            raise ConfigurationError(f"currency is {self.currency!r}: it must be a text such as 'EUR'")


@final
@dataclass(frozen=True)
class Cost(Metric):
    """Σ over nodes of seconds · price + energy · tariff, by the user's own prices.

    A node is in use from the first row of the run to the last; energy is `Energy`. Without a price, and
    where the tariff is given and the energy could not be measured, it is unavailable, and the reason says so.
    An exact fact of one run.
    """

    prices: PriceTable = PriceTable()

    name = "cost"
    direction = "min"
    kind = "cost"
    aggregation = "sum over nodes and energy"
    description = "what the nodes and the energy of the run cost"

    @property
    def unit(self) -> str:  # type: ignore[override]
        """The currency of the price."""
        return self.prices.currency

    def reads(self) -> tuple[str, ...]:
        return () if self.prices.per_kilowatt_hour is None else Energy().reads()

    def estimate(self, run: RunTables) -> Estimate:
        prices = self.prices
        if prices.node_per_hour is None and prices.per_kilowatt_hour is None:
            return Estimate(None, reason="unavailable: there is no price: Cost(PriceTable(node_per_hour=…))")
        seconds = node_seconds(run)
        if not seconds:
            return Estimate(None, reason="unavailable: nothing was recorded")
        costs = np.array([each / HOUR * (prices.node_per_hour or 0.0) for each in seconds.values()])
        if prices.per_kilowatt_hour is not None:
            for number, name in enumerate(seconds):
                own = Energy().estimate(_only(run, name))
                if own.value is None:
                    return Estimate(None, reason=f"{own.reason}; leave per_kilowatt_hour out for nodes alone")
                costs[number] += own.value / KILOWATT_HOUR * prices.per_kilowatt_hour
        return of_each_run(np.arange(len(costs)), costs, np.sum)


def _only(run: RunTables, name: str) -> RunTables:
    return {**run, "samples": run["samples"].filter(pc.equal(run["samples"]["run_id"], name))}
