"""Queries of Prometheus, put together from the exported metrics: no other name can be written"""

from d5ray.metrics.exports.exported_metrics import COUNTER, GAUGE, ExportedMetric

INTERVAL = "$__rate_interval"  # Grafana's own: wide enough for the interval of the scrapes


def now(metric: ExportedMetric, where: str = "") -> str:
    """The values of a gauge, or the totals of a counter; `where`: a selection such as 'run="a"'."""
    return metric.exposed + (f"{{{where}}}" if where else "")


def per_second(metric: ExportedMetric, where: str = "", *, over: str = INTERVAL) -> str:
    """The growth of a counter per second."""
    assert metric.kind == COUNTER, f"{metric.name} is no counter"
    return f"rate({now(metric, where)}[{over}])"


def by(labels: str, aggregation: str, query: str) -> str:
    """Series with equal labels taken together.

    >>> by("run", "sum", "x")
    'sum by (run) (x)'
    """
    return f"{aggregation} by ({labels}) ({query})"


def gauge(labels: str, aggregation: str, metric: ExportedMetric, where: str = "") -> str:
    """A gauge, one series for each of the labels' values."""
    assert metric.kind == GAUGE, f"{metric.name} is no gauge"
    return by(labels, aggregation, now(metric, where))


def rate(labels: str, metric: ExportedMetric, where: str = "") -> str:
    """The growth of a counter a second, summed to one series for each of the labels' values."""
    return by(labels, "sum", per_second(metric, where))


def total(labels: str, metric: ExportedMetric, where: str = "") -> str:
    """A counter, summed to one series for each of the labels' values."""
    assert metric.kind == COUNTER, f"{metric.name} is no counter"
    return by(labels, "sum", now(metric, where))
