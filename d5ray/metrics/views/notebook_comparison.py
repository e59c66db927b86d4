"""Comparisons of runs as notebooks show them"""

from collections.abc import Sequence
from typing import Final, Protocol

from d5ray.display import notebook_html
from d5ray.metrics.judge.differences import BAD, GOOD, MetricDifference
from d5ray.metrics.views.notebook import number

PLAIN: Final = ("same", "equal", "different")  # words that judge nothing


class Compared(Protocol):
    """The shown part of a comparison: the runs of both sides, what is incomparable, how they differ."""

    @property
    def first(self) -> tuple[str, ...]: ...
    @property
    def second(self) -> tuple[str, ...]: ...
    @property
    def first_is(self) -> str: ...
    @property
    def second_is(self) -> str: ...
    @property
    def incomparable(self) -> Sequence[str]: ...
    @property
    def differences(self) -> Sequence[MetricDifference]: ...
    @property
    def conclusion(self) -> Sequence[str]: ...
    @property
    def notes(self) -> Sequence[str]: ...


def comparison(found: Compared) -> str:
    """A line for every metric, or in what the runs cannot be compared."""
    sides = notebook_html.table(
        ("", "runs", "what they are"),
        [
            ("first", _named(found.first), found.first_is),
            ("second", _named(found.second), found.second_is),
        ],
    )
    if found.incomparable:
        lines = [notebook_html.small(line) for line in found.incomparable]
        return notebook_html.block(
            sides, notebook_html.title("incomparable: what is FIXED differs, or the data"), *lines
        )
    names = (
        "metric",
        "estimator",
        "first",
        "second",
        "second / first",
        "95% interval",
        "pairs",
        "the second is",
    )
    rows = [
        [
            each.metric + ("" if each.unit == "1" else f" ({each.unit})"),
            each.estimator,
            number(each.first, 6),
            number(each.second, 6),
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
    table = notebook_html.table(names, rows, (False, False, True, True, True, True, True))
    return notebook_html.block(sides, table, *map(notebook_html.small, notes))


def _named(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} runs: {names[0]} to {names[-1]}"


def _judged(word: str) -> notebook_html.Html:
    alike = "PASS" if word in GOOD else "FAIL" if word in BAD else "INCONCLUSIVE"
    return notebook_html.word(alike, word) if word not in PLAIN else notebook_html.text(word)
