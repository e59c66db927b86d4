"""All charts of the page by name"""

from typing import Any

from d5ray.dashboards.page import beside, charts, timeline, topology
from d5ray.dashboards.page.chart_style import empty
from d5ray.dashboards.page.charts import ChartOptions
from d5ray.dashboards.page.runs import OpenRun
from d5ray.errors import D5Error

CHARTS: dict[str, charts.Draw] = charts.CHARTS | {
    "graph": topology.graph, "timeline": timeline.timeline, "happened": timeline.happened,
    "beside_loss": beside.loss, "beside_accuracy": beside.accuracy, "beside_step_time": beside.step_time,
    "beside_throughput": beside.throughput,
}  # fmt: skip
STILL = ("parts_of_agents", "staleness", "graph")  # charts that are not zoomed


def drawn(name: str, shown: OpenRun, look: ChartOptions) -> dict[str, Any]:
    """A chart, or why there is none."""
    try:
        return CHARTS[name](shown, look)
    except D5Error as error:
        return empty(str(error))
