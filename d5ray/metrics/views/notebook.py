"""Verdicts as notebooks show them"""

from collections.abc import Iterable, Mapping
from typing import Any

from d5ray.display import notebook_html


def criteria(rows: Iterable[Mapping[str, Any]]) -> notebook_html.Html:
    """Rows of `verdicts`: each criterion with what was measured, its interval, and what follows."""
    names = ("criterion", "", "target", "measured", "95% interval", "n", "verdict")
    lines = []
    for row in rows:
        interval = (
            "" if row["low"] is None or row["high"] is None else f"[{row['low']:.4g}, {row['high']:.4g}]"
        )
        lines.append(
            [
                row["metric"] + ("" if row["unit"] == "1" else f" ({row['unit']})"),
                "≥" if row["relation"] == ">=" else "≤",
                f"{row['target']:.4g}",
                "–" if row["value"] is None else f"{row['value']:.4g}",
                interval,
                f"{row['n']} {row['sample_unit'] or ''}" if row["n"] else "",
                notebook_html.word(row["verdict"]),
            ]
        )
    return notebook_html.table(names, lines, (False, False, True, True, True))
