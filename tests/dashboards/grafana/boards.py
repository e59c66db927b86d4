"""What the dashboards of Grafana ask for"""

import re
from typing import Any


def charts(board: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels of a board that have queries."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries(board: dict[str, Any]) -> list[str]:
    """All queries of a board, as Prometheus gets them when everything is chosen."""
    return [
        re.sub(r'=~?"\$\w+"', '=~".*"', target["expr"]).replace("$__rate_interval", "1m")
        for panel in charts(board)
        for target in panel["targets"]
    ]
