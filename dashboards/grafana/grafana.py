"""Grafana's dashboards: the JSON files of this folder, and what all of their panels have in common"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

COLOURS: Final = (  # Okabe and Ito, without black: Grafana's page is dark
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999",
)  # fmt: skip
RANKS: Final = tuple(rf"(rank|server) \d*{digit}\b" for digit in range(10))
NAMES: Final[dict[str, tuple[str, ...]]] = {  # a legend's first word -> names of series, as COLOURS go
    "{{run}}": (),
    "{{phase}}": ("data", "forward", "backward", "exchange", "update", "record"),
    "{{at}}": ("servers", "windows", "letters"),
    "{{rank}}": ("torch", "tensorflow", "numpy", "cupy"),  # of an executor of operators
    "rank": RANKS,
    "server": RANKS,
}
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "stat": {"displayName": "${__field.labels.run}"},
    "timeseries": {"custom": {"lineWidth": 2, "showPoints": "auto"}},
}
OPTIONS: Final = {
    "stat": {
        "colorMode": "none",
        "graphMode": "none",
        "reduceOptions": {"calcs": ["lastNotNull"], "values": False},
    },
    "timeseries": {
        "legend": {
            "showLegend": True, "displayMode": "list", "placement": "bottom", "calcs": ["lastNotNull"],
        },
        "tooltip": {"mode": "multi", "sort": "asc"},
    },
}  # fmt: skip


def dashboards() -> dict[str, dict[str, Any]]:
    """The dashboards as Grafana reads them, by the names of their files."""
    paths = sorted(Path(__file__).parent.glob("*.json"))
    found = {path.name: json.loads(path.read_bytes()) for path in paths}
    for board in found.values():
        for number, panel in enumerate(board["panels"], start=1):
            panel["id"] = number
            if panel["type"] != "row":
                _complete(panel)
    return found


def _complete(panel: dict[str, Any]) -> None:
    panel |= {"datasource": SOURCE, "options": OPTIONS[panel["type"]]}
    own, usual = panel["fieldConfig"]["defaults"], DEFAULTS[panel["type"]]
    custom = {**usual.get("custom", {}), **own.get("custom", {})}
    panel["fieldConfig"] = {
        "defaults": {"noValue": "no data", **usual, **own, "custom": custom},
        "overrides": list(_coloured([target["legendFormat"] for target in panel["targets"]])),
    }
    for letter, target in zip("ABCD", panel["targets"], strict=False):
        target |= {"refId": letter, "range": True}


def _coloured(legends: list[str]) -> Iterator[dict[str, Any]]:
    """A fixed colour for each name, which those can tell apart who do not see red and green."""
    words = [legend.split()[0] for legend in legends]
    for number, name in enumerate(name for word in words for name in NAMES.get(word, (word,))):
        properties: list[dict[str, Any]] = [
            {"id": "color", "value": {"mode": "fixed", "fixedColor": COLOURS[number % len(COLOURS)]}}
        ]
        if number >= len(COLOURS):
            properties.append({"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [8, 6]}})
        yield {"matcher": {"id": "byRegexp", "options": f"/^{name}/"}, "properties": properties}
