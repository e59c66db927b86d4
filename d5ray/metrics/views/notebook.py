"""Verdicts as notebooks show them"""

from collections.abc import Iterable, Mapping
from typing import Any

from d5ray.display import notebook_html


def number(value: float | None, digits: int = 4) -> str:
    """A measured value; infinite is that of runs that did not get there within their budget; – for none."""
    return "–" if value is None else f"{value:.{digits}g}".replace("inf", "> budget")


def criteria(rows: Iterable[Mapping[str, Any]]) -> notebook_html.Html:
    """Rows of `verdicts`: each criterion with what was measured, its interval, and what follows."""
    names = ("criterion", "", "target", "measured", "95% interval", "n", "verdict")
    lines = []
    for row in rows:
        low, high = row["low"], row["high"]
        lines.append(
            [
                row["metric"] + ("" if row["unit"] == "1" else f" ({row['unit']})"),
                "≥" if row["relation"] == ">=" else "≤",
                f"{row['target']:.4g}",
                number(row["value"]),
                "" if low is None or high is None else f"[{number(low)}, {number(high)}]",
                f"{row['n']} {row['sample_unit'] or ''}" if row["n"] else "",
                notebook_html.word(row["verdict"]),
            ]
        )
    return notebook_html.table(names, lines, (False, False, True, True, True))
