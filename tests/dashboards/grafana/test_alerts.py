"""The alerts load in Prometheus's own tool, fire when they should, and do not when they should not"""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from d5ray.dashboards.grafana import placing
from d5ray.metrics.exports import exported_metrics as m
from tests.conftest import ran

PROMTOOL = shutil.which("promtool")
pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing: make tools")
OF = 'run="r", recipe="x"'
RULES = placing.FOLDER / placing.ALERTS
NAMES = [rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]]


def series(metric: m.ExportedMetric, values: str, labels: str = "") -> dict[str, str]:
    """Values of one minute after the other, in promtool's notation."""
    return {"series": f"{metric.exposed}{{{OF}{', ' + labels if labels else ''}}}", "values": values}


def agent(rank: int, steps: str, training: str = "1x20") -> list[dict[str, str]]:
    return [
        series(m.TRAINING, training, f'role="agent", rank="{rank}"'),
        series(m.STEPS, steps, f'role="agent", rank="{rank}"'),
        series(m.LOSS_IS_NO_NUMBER, "0x20", f'role="agent", rank="{rank}"'),
    ]


def driver(agents: str = "2x20", **failures: str) -> list[dict[str, str]]:
    return [
        series(m.AGENTS, agents, 'role="coordinator", rank=""'),
        *(
            series(m.FAILURES, values, f'role="coordinator", rank="", kind="{kind}"')
            for kind, values in failures.items()
        ),
    ]


HEALTHY = [*agent(0, "0+100x20"), *agent(1, "0+90x20"), *driver()]
CASES: dict[str, tuple[list[dict[str, str]], dict[str, dict[int, int]]]] = {
    # series, and how many of each alert fire at which minute; those that are not named never fire
    "healthy": (HEALTHY, {}),
    "one agent stands still from minute 5 on": (
        [*agent(0, "0+100x20"), *agent(1, "0+90x5 450x15"), *driver()],
        {"D5rayAgentStalled": {5: 0, 8: 0, 11: 1, 20: 1}},
    ),
    "no agent has ever made a step": (
        [series(m.TRAINING, "1x20", 'role="agent", rank="0"'), *driver("1x20")],
        {"D5rayAgentStalled": {2: 0, 4: 1}},
    ),
    "all steps are done, nobody trains": (
        [*agent(0, "0+100x5 500x15", "1x5 0x15"), *agent(1, "0+100x5 500x15", "1x5 0x15"), *driver()],
        {},
    ),
    "a slow one makes a step in two minutes": (
        [*agent(0, "0 0 1 1 2 2 3 3 4 4 5 5 6 6 7 7 8 8 9 9 10"), *driver("1x20")],
        {},
    ),
    "a loss of NaN, once": (
        [
            *HEALTHY,
            series(m.LOSS_IS_NO_NUMBER, "0x9 1", 'role="agent", rank="9"'),
            *driver(nan_loss="_x10 1x10")[1:],
        ],
        {"D5rayLossNotANumber": {9: 0, 10: 1, 12: 1, 14: 1, 20: 0}},
    ),
    "a loss of NaN of a run that is over": (
        driver(nan_loss="_x10 1x10")[1:],
        {"D5rayLossNotANumber": {9: 0, 11: 1, 20: 0}},
    ),
    "a lost peer is news for five minutes": (
        [*HEALTHY, *driver(peer_lost="_x3 1x17")[1:]],
        {"D5rayPeerLost": {2: 0, 4: 1, 7: 1, 10: 0, 20: 0}},
    ),
    "another one dies later": (
        [*HEALTHY, *driver(died="1x9 2x11")[1:]],
        {"D5rayPeerLost": {0: 1, 7: 0, 11: 1, 17: 0}},
    ),
    "an agent says nothing any more": (
        [*agent(0, "0+100x20"), *agent(1, "0+90x5", "1x5 stale")[:2], *driver()],
        {"D5rayAgentSilent": {5: 0, 8: 1, 20: 1}},
    ),
    "no agent says anything": (driver(), {"D5rayAgentSilent": {0: 0, 2: 1}}),
    "an agent died and the run goes on without it": (
        [*agent(0, "0+100x20"), *agent(1, "0+90x5", "1x5 stale")[:2], *driver("2x5 1x15")],
        {},
    ),
}


def test_the_rules_load(tmp_path: Path) -> None:
    """`promtool check rules` finds all of them, `check config` the settings around them."""
    placed = placing.place(tmp_path, None)
    assert f"{len(NAMES)} rules found" in promtool("check", "rules", str(placed.alerts))
    assert "is valid prometheus config" in promtool("check", "config", str(placed.settings))


@pytest.mark.parametrize("case", CASES)
def test_an_alert_fires_when_it_should(case: str, tmp_path: Path) -> None:
    """In made series of twenty minutes, a value a minute; also what must not fire at any minute."""
    given, expected = CASES[case]
    wanted = [
        {
            "expr": f"count(ALERTS{{alertname='{alert}',alertstate='firing'}}) or vector(0)",
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": "{}", "value": count}],
        }
        for alert in NAMES
        for minute, count in expected.get(alert, dict.fromkeys(range(21), 0)).items()
    ]
    document: dict[str, Any] = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": given, "promql_expr_test": wanted}],
    }
    made = tmp_path / "case.yml"
    made.write_text(yaml.safe_dump(document))
    assert "SUCCESS" in promtool("test", "rules", str(made))


def promtool(*arguments: str) -> str:
    done = ran(PROMTOOL, *arguments)
    return done.out + done.err
