"""Grafana's dashboards: complete, from the one list of what is shown, with colours and units one can read"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from d5ray.dashboards.grafana import grafana
from d5ray.dashboards.grafana.alerts import ALERTS
from d5ray.dashboards.grafana.boards import BOARDS
from d5ray.dashboards.grafana.charts import Board
from d5ray.metrics.exports import exported_metrics as m

NAMES = {each.exposed: each for each in m.EXPORTED}
GRAFANAS_UNITS = {"short", "s", "percentunit", "Bps", "decbytes"}


def panels(board: Board) -> list[dict[str, Any]]:
    found = json.loads(grafana.as_json(board))["panels"]
    assert isinstance(found, list)
    return found


def test_what_the_mirror_shows_is_on_a_dashboard_and_nothing_else_is_asked_for() -> None:
    """Every metric is in a query of a panel or an alert; every name in a query is a metric that is shown."""
    asked = [query for board in BOARDS for query in grafana.queries(board)] + [
        alert.query for alert in ALERTS
    ]
    named = {name for query in asked for name in re.findall(r"ray_[a-z0-9_]+", query)}
    assert named == set(NAMES)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_the_library_reads_back_what_it_wrote(board: Board) -> None:
    """By the types of Grafana's own schema."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: PLC0415 - an extra
    from grafana_foundation_sdk.cog.plugins import register_default_plugins  # noqa: PLC0415
    from grafana_foundation_sdk.models.dashboard import Dashboard  # noqa: PLC0415

    register_default_plugins()
    text = grafana.as_json(board)
    again = Dashboard.from_json(json.loads(text))
    assert json.loads(json.dumps(again, cls=JSONEncoder)) == json.loads(text)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_panel_says_what_it_shows_in_which_unit(board: Board) -> None:
    """A title of its own, a description, a unit that Grafana has, words at the axis, variables that exist."""
    found = panels(board)
    titles = [panel["title"] for panel in found]
    assert len(set(titles)) == len(titles) == len(board.charts)
    known = {"__rate_interval", "datasource", *board.variables}
    for panel, chart in zip(found, board.charts, strict=True):
        assert panel["description"].endswith(".")
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] in GRAFANAS_UNITS
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        if panel["type"] == "timeseries":
            assert defaults["custom"]["axisLabel"] == chart.axis
        for target in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= known
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouped = re.findall(r"by \(([\w, ]+)\)", target["expr"])
            assert labels <= {label for group in grouped for label in group.split(", ")}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_panels_lie_side_by_side_without_gaps_or_overlaps(board: Board) -> None:
    """24 columns; no cell is taken twice, and every row of panels is full."""
    cells: set[tuple[int, int]] = set()
    for panel in panels(board):
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells
        assert all(x < 24 for x, _ in own)
        cells |= own
    lowest = max(y for _, y in cells)
    for y in range(lowest - grafana.HEIGHT + 1):
        assert sum((x, y) in cells for x in range(24)) == 24, f"row {y}"


def test_ten_agents_have_ten_looks() -> None:
    """Colours of Okabe and Ito, the last two dashed; each name matches one pattern alone."""
    loss = next(panel for panel in panels(BOARDS[0]) if panel["title"] == "Training loss")
    overrides = loss["fieldConfig"]["overrides"]
    looks = set()
    for rank in range(10):
        name = f"rank {rank} · lenet-20261120-193654-7f3a91c2"
        matching = [o for o in overrides if re.search(o["matcher"]["options"].strip("/"), name)]
        assert len(matching) == 1
        looks.add(json.dumps(matching[0]["properties"]))
    assert len(looks) == 10


def test_files_are_written_under_the_names_of_the_boards(tmp_path: Path) -> None:
    """One for each, JSON as Grafana loads it, with an identifier that stays."""
    written = grafana.write(tmp_path)
    assert [path.name for path in written] == [f"{board.uid}.json" for board in BOARDS]
    assert [json.loads(path.read_text())["uid"] for path in written] == [board.uid for board in BOARDS]
