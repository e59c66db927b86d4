"""Verdicts and comparisons as notebooks show them"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from d5ray.display import notebook_html

if TYPE_CHECKING:
    from d5ray.metrics.judge.comparison import Comparison

_GOOD, _BAD = ("better", "faster"), ("worse", "slower")


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


def comparison(found: "Comparison") -> str:
    """A line for every metric, or in what the runs cannot be compared."""
    sides = notebook_html.table(
        ("", "runs"), [("first", _named(found.first)), ("second", _named(found.second))]
    )
    if found.incomparable:
        lines = [notebook_html.small(line) for line in found.incomparable]
        return notebook_html.block(
            sides, notebook_html.title("incomparable: what is FIXED differs, or the data"), *lines
        )
    names = ("metric", "first", "second", "second / first", "95% interval", "pairs", "the second is")
    rows = [
        [
            each.metric + ("" if each.unit == "1" else f" ({each.unit})"),
            each.first,
            each.second,
            "–" if each.ratio is None else f"{each.ratio:.3f}",
            "" if each.low is None or each.high is None else f"[{each.low:.3f}, {each.high:.3f}]",
            each.n,
            _judged(each.verdict),
        ]
        for each in found.differences
    ]
    notes = [
        *found.conclusion,
        *found.notes,
        *sorted({each.reason for each in found.differences if each.reason}),
    ]
    table = notebook_html.table(names, rows, (False, True, True, True, True, True))
    return notebook_html.block(sides, table, *map(notebook_html.small, notes))


def _named(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} runs: {names[0]} to {names[-1]}"


def _judged(word: str) -> notebook_html.Html:
    alike = "PASS" if word in _GOOD else "FAIL" if word in _BAD else "INCONCLUSIVE"
    return notebook_html.word(alike, word) if word != "same" else notebook_html.text(word)
