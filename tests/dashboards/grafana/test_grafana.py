"""Grafana's dashboards: complete, from the one list of what is shown, with colours and units one can read"""

import re
from typing import Any

import pytest
import yaml

from d5ray.dashboards.grafana import grafana, placing
from d5ray.metrics.exports import exported_metrics as m
from tests.dashboards.grafana.boards import charts, queries

NAMES = {each.exposed: each for each in m.EXPORTED}
BOARDS = grafana.dashboards()
GRAFANAS_UNITS = {"short", "s", "percentunit", "Bps", "decbytes"}


def test_what_the_mirror_shows_is_on_a_dashboard_and_nothing_else_is_asked_for() -> None:
    """Every metric is in a query of a panel or an alert; every name in a query is a metric that is shown.

    A counter is asked for its rate or its sum, and a gauge never for its rate.
    """
    (group,) = yaml.safe_load((placing.FOLDER / placing.ALERTS).read_text())["groups"]
    asked = [query for board in BOARDS.values() for query in queries(board)]
    asked += [rule["expr"] for rule in group["rules"]]
    named = {name for query in asked for name in re.findall(r"ray_[a-z0-9_]+", query)}
    assert named == set(NAMES)
    rates = {name for query in asked for name in re.findall(r"rate\((ray_[a-z0-9_]+)", query)}
    assert {NAMES[name].kind for name in rates} == {m.COUNTER}


@pytest.mark.parametrize("board", BOARDS.values(), ids=BOARDS)
def test_every_panel_says_what_it_shows_in_which_unit(board: dict[str, Any]) -> None:
    """A title of its own, a description, a unit that Grafana has, words at the axis, variables that exist."""
    titles = [panel["title"] for panel in board["panels"]]
    assert len(set(titles)) == len(titles)
    known = {"__rate_interval", *(variable["name"] for variable in board["templating"]["list"])}
    for panel in charts(board):
        assert panel["description"].endswith(".")
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"] in GRAFANAS_UNITS
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["type"] == "stat" or defaults["custom"]["axisLabel"]
        for target in panel["targets"]:
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= known
            labels = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouped = re.findall(r"by \(([\w, ]+)\)", target["expr"])
            assert labels <= {label for group in grouped for label in group.split(", ")}
