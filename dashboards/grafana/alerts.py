"""Alerts of Prometheus: a run that stands still, came to NaN, lost a peer; and its settings"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from d5ray.dashboards.grafana.promql import by, gauge, now, per_second, total
from d5ray.metrics.exports import exported_metrics as m

RULES: Final = "d5ray_alerts.yml"
SETTINGS: Final = "prometheus.yml"
STALL: Final = "3m"  # without a step, after the two minutes that a rate looks back
RECENT: Final = "5m"  # in which a failure is news
SILENCE: Final = "1m"  # an agent starts to speak some ten seconds after it has begun
LOST: Final = 'kind=~"died|server_died|peer_lost"'
NAN: Final = 'kind="nan_loss"'
OF_RUN, OF_AGENT = "run, recipe", "run, recipe, rank"


@dataclass(frozen=True)
class Alert:
    """An alert: it fires when the query gives series for so long. summary, advice: with labels in {{…}}."""

    name: str
    query: str
    lasting: str
    severity: str
    summary: str
    advice: str


def _news(where: str) -> str:
    """Failures that were not there before; a counter begins with its first failure, and not with 0."""
    counted = total(OF_RUN, m.FAILURES, where)
    before = by(OF_RUN, "sum", f"{now(m.FAILURES, where)} offset {RECENT}")
    return f"{counted} - ({before} or {counted} * 0) > 0"


ALERTS: Final = (
    Alert(
        "D5rayAgentStalled",
        f"{gauge(OF_AGENT, 'max', m.TRAINING)} == 1 unless on (run, rank) "
        f"{by('run, rank', 'sum', per_second(m.STEPS, over='2m'))} > 0",
        STALL,
        "warning",
        "agent {{ $labels.rank }} of {{ $labels.run }} trains, but has made no step for minutes",
        "It may wait for another one, or for data, or be in a long evaluation: d5ray show {{ $labels.run }}",
    ),
    Alert(
        "D5rayLossNotANumber",
        f"{gauge(OF_AGENT, 'max', m.LOSS_IS_NO_NUMBER)} == 1 or on (run) {_news(NAN)}",
        "0s",
        "critical",
        "the loss of {{ $labels.run }} is no number any more",
        "The run ends with the status nan_loss; a smaller learning rate, or StopAtNaN() to name the tensor.",
    ),
    Alert(
        "D5rayPeerLost",
        _news(LOST),
        "0s",
        "critical",
        "an agent or a server of {{ $labels.run }} died, or lost a peer",
        "What the run does then is its on_failure; the reason: d5ray show {{ $labels.run }}",
    ),
    Alert(
        "D5rayAgentSilent",
        f"{gauge(OF_RUN, 'max', m.AGENTS)} > "
        f"({by(OF_RUN, 'count', gauge(OF_AGENT, 'max', m.TRAINING))} "
        f"or {gauge(OF_RUN, 'max', m.AGENTS)} * 0)",
        SILENCE,
        "warning",
        "an agent that {{ $labels.run }} counts on says nothing",
        "Its process stands still or is gone, or its node is not scraped: see Ray's dashboard, page Actors.",
    ),
)


def rules(alerts: Sequence[Alert] = ALERTS) -> str:
    """The alerts as Prometheus reads them."""
    each = [
        {
            "alert": alert.name,
            "expr": alert.query,
            "for": alert.lasting,
            "labels": {"severity": alert.severity},
            "annotations": {"summary": alert.summary, "description": alert.advice},
        }
        for alert in alerts
    ]
    return _text({"groups": [{"name": "d5ray", "rules": each}]})


def settings(discovery: Path, alerts: Path) -> str:
    """Settings of a Prometheus that scrapes what Ray's discovery file names, and loads these alerts."""
    return _text(
        {
            "global": {"scrape_interval": "10s", "evaluation_interval": "10s"},
            "rule_files": [str(alerts)],
            "scrape_configs": [{"job_name": "ray", "file_sd_configs": [{"files": [str(discovery)]}]}],
        }
    )


def write(folder: Path, discovery: Path) -> list[Path]:
    """The alerts, and settings with which Prometheus loads them and finds what to scrape; their paths."""
    alerts, setup = folder.absolute() / RULES, folder.absolute() / SETTINGS
    alerts.write_text(rules(), encoding="utf-8")
    setup.write_text(settings(discovery, alerts), encoding="utf-8")
    return [alerts, setup]


def _text(data: dict[str, Any]) -> str:
    return str(yaml.safe_dump(data, sort_keys=False, width=1000, allow_unicode=True))
