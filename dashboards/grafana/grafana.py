"""Makes Grafana's dashboards of the boards, and writes them where Grafana finds them"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from d5ray.dashboards.grafana.boards import BOARDS
from d5ray.dashboards.grafana.charts import Board, Chart
from d5ray.errors import ConfigurationError
from d5ray.metrics.exports import exported_metrics as m

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders.dashboard import Dashboard, QueryVariable

COLOURS: Final = (  # Okabe and Ito, without black: Grafana's page is dark
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999",
)  # fmt: skip
SOURCE: Final = "${datasource}"
HEIGHT: Final = 8
TITLES: Final = {"recipe": "Recipe", "run": "Run", "rank": "Rank"}
MISSING: Final = "grafana-foundation-sdk is not installed: pip install 'd5ray[dashboard]'"


def write(folder: Path, boards: Sequence[Board] = BOARDS) -> list[Path]:
    """Write a JSON file for each board into this folder, which is there; gives their paths."""
    written = {folder / f"{board.uid}.json": as_json(board) for board in boards}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    return list(written)


def as_json(board: Board) -> str:
    """The dashboard as Grafana reads it. Raises `ConfigurationError` where the library is missing."""
    try:
        from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigurationError(MISSING) from error
    return json.dumps(_dashboard(board).build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _dashboard(board: Board) -> "Dashboard":
    from grafana_foundation_sdk.builders import dashboard as made  # noqa: PLC0415 - an extra
    from grafana_foundation_sdk.models import dashboard as kinds  # noqa: PLC0415

    links = made.DashboardLink("d5ray").type(kinds.DashboardLinkType.DASHBOARDS).tags(["d5ray"])
    board_made = (
        made.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(["d5ray"])
        .refresh("10s")
        .time("now-30m", "now")
        .tooltip(kinds.DashboardCursorSync.CROSSHAIR)
        .link(links.as_dropdown(True).include_vars(True).keep_time(True))
        .with_variable(made.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for name in board.variables:
        board_made = board_made.with_variable(_variable(board, name))
    for number, chart in enumerate(board.charts):
        board_made = board_made.with_panel(_panel(chart).id(number + 1))
    return board_made


def _variable(board: Board, name: str) -> "QueryVariable":
    """A choice of recipes, runs or ranks in the time shown, among those of the variables before it."""
    from grafana_foundation_sdk.builders.dashboard import QueryVariable  # noqa: PLC0415 - an extra
    from grafana_foundation_sdk.models import dashboard as kinds  # noqa: PLC0415

    before = board.variables[: board.variables.index(name)]
    gauges = (m.TRAINING,) if name == "rank" else (m.AGENTS, m.OPERATOR_TIME)  # which end with their run
    names = "|".join(gauge.exposed for gauge in gauges)
    where = ",".join([f'__name__=~"{names}"', *(f'{other}=~"${other}"' for other in before)])
    query = f"label_values({{{where}}}, {name})"
    made = (
        QueryVariable(name)
        .label(TITLES[name])
        .datasource(kinds.DataSourceRef(type_val="prometheus", uid=SOURCE))
        .query({"query": query, "refId": name})
        .refresh(kinds.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(kinds.VariableSort.ALPHABETICAL_DESC if name == "run" else kinds.VariableSort.NUMERICAL_ASC)
    )
    if board.single:
        return made
    everything = kinds.VariableOption(selected=True, text="All", value="$__all")
    return made.multi(True).include_all(True).current(everything)


def _panel(chart: Chart) -> Any:
    from grafana_foundation_sdk.builders import common, prometheus, stat, timeseries  # noqa: PLC0415 - extra
    from grafana_foundation_sdk.models import common as kinds  # noqa: PLC0415
    from grafana_foundation_sdk.models.dashboard import DataSourceRef  # noqa: PLC0415

    panel: Any = stat.Panel() if chart.number else timeseries.Panel()
    panel = (
        panel.title(chart.title)
        .description(chart.description)
        .datasource(DataSourceRef(type_val="prometheus", uid=SOURCE))
        .unit(chart.unit)
        .span(chart.width)
        .height(HEIGHT // 2 if chart.number else HEIGHT)
        .no_value("no data")
    )
    for number, line in enumerate(chart.lines):
        query = prometheus.Dataquery().expr(line.query).legend_format(line.legend).range()
        panel = panel.with_target(query.ref_id(chr(ord("A") + number)))
    if chart.lowest is not None:
        panel = panel.min(chart.lowest)
    if chart.highest is not None:
        panel = panel.max(chart.highest)
    panel = _coloured(panel, chart.names)
    if chart.number:
        panel = panel.graph_mode(kinds.BigValueGraphMode.NONE)
        panel = panel.color_mode(kinds.BigValueColorMode.NONE).display_name("${__field.labels.run}")
        return panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    panel = panel.axis_label(chart.axis).line_width(2).show_points(kinds.VisibilityMode.AUTO)
    if chart.stacked:
        panel = panel.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL)).fill_opacity(60)
    legend = common.VizLegendOptions().show_legend(True).placement(kinds.LegendPlacement.BOTTOM)
    legend = legend.display_mode(kinds.LegendDisplayMode.LIST).calcs(["lastNotNull"])
    tooltip = common.VizTooltipOptions().mode(kinds.TooltipDisplayMode.MULTI)
    return panel.legend(legend).tooltip(tooltip)


def _coloured(panel: Any, names: Sequence[str]) -> Any:
    """A fixed colour for each name, which those can tell apart who do not see red and green."""
    from grafana_foundation_sdk.models.dashboard import DynamicConfigValue  # noqa: PLC0415 - an extra

    for number, name in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        properties = [DynamicConfigValue("color", {"mode": "fixed", "fixedColor": colour})]
        if number >= len(COLOURS):
            properties.append(DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}))
        panel = panel.override_by_regexp(f"/^{name}/", properties)
    return panel


def queries(board: Board) -> list[str]:
    """All queries of a board, as Prometheus gets them when everything is chosen."""
    return [
        re.sub(r'=~?"\$\w+"', '=~".*"', line.query).replace("$__rate_interval", "1m")
        for chart in board.charts
        for line in chart.lines
    ]
