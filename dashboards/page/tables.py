"""The tables of the page: text stays text, numbers stand below each other"""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from dash import html

from d5ray.dashboards.page.runs import OpenRun
from d5ray.dashboards.quantities import PLAIN, number, size
from d5ray.display.visible_text import one_line
from d5ray.metrics.judge.criteria import Verdict
from d5ray.metrics.views import samples
from d5ray.metrics.views.verdicts import estimators

Component = Any
MOST_TEXT = 300  # characters of a cell
TITLES: Final = {"t_wall": "time (UTC)"}  # of columns of samples that are called otherwise


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], **more: Any) -> Component:
    """A table of rows. columns: from what a row calls it to what stands above it."""
    numbers = {name for name in columns if any(_is_number(row.get(name)) for row in rows)}
    heads = [
        html.Th(title, scope="col", className="number" if name in numbers else "")
        for name, title in columns.items()
    ]
    head = html.Thead(html.Tr(heads))
    body = [
        html.Tr([_cell(row.get(name)) for name in columns], className=row.get("class", "")) for row in rows
    ]
    return html.Div(html.Table([head, html.Tbody(body)]), className="table", **more)


def of_arrow(found: pa.Table) -> Component:
    """An answer to a query."""
    return table(found.to_pylist(), {name: name for name in found.schema.names}, tabIndex=0)


def of_samples(shown: OpenRun, chosen: samples.Filter, number: int) -> tuple[Component, str] | None:
    """The number-th page of the rows that fit, and which of how many they are; None after the last page."""
    known = shown.ask(samples.span, chosen=chosen)
    found = samples.page(shown.view, chosen, number, known)
    if not found.num_rows and number:
        return None
    begin, total = number * samples.PAGE_ROWS, known["n"]
    told = f"{begin + 1:,} to {begin + found.num_rows:,} of {total:,}" if total else "no rows fit"
    return table(found.to_pylist(), {name: TITLES.get(name, name) for name in samples.COLUMNS}), told


def verdicts(found: pa.Table, known: Sequence[Mapping[str, Any]] = ()) -> Component:
    """A card for each criterion. known: rows of the run's table `metrics`, which say how values are made."""
    cards = []
    rows = found.to_pylist()
    estimated = estimators([row["metric"] for row in rows], known)
    for row in rows:
        verdict = Verdict(**row)
        unit = "" if verdict.unit == "1" else f" {verdict.unit}"
        relation = "≥" if verdict.relation == ">=" else "≤"
        interval = PLAIN.interval(verdict.low, verdict.high)
        under = filter(None, (interval and f"95 % {interval}", _counted(verdict)))
        cards.append(
            html.Div(
                [
                    html.Div([badge(verdict.verdict), html.Span(verdict.metric, className="name")]),
                    html.Div(
                        [
                            html.Strong(PLAIN.text(verdict.value) + unit),
                            html.Span(f"{relation} {number(verdict.target)}{unit}"),
                        ]
                    ),
                    html.Div(" · ".join(under), className="faint"),
                    html.Div(estimated.get(verdict.metric.partition("(")[0], ""), className="faint"),
                    html.Div(verdict.reason or "", className="faint"),
                ],
                className=f"card criterion {verdict.verdict.lower()}",
            )
        )
    return html.Div(cards, className="cards", id="criteria")


def badge(word: str) -> Component:
    """A verdict or a status."""
    return html.Span(word, className=f"badge {word.lower()}")


def stat(title: str, value: str, unit: str = "") -> Component:
    """One figure of a run."""
    shown = [html.Strong(value), *([html.Span(f" {unit}")] if unit and value != "–" else [])]
    return html.Div([html.Div(title, className="faint"), html.Div(shown)], className="card stat")


def stats(found: Mapping[str, Any]) -> Component:
    """A run in a few figures."""
    step = found["step_time"]
    split, correct = accuracy(found)
    return html.Div(
        [
            stat("steps", _or_dash(found["steps"], "{:,}".format)),
            stat("time", _or_dash(found["seconds"], duration)),
            stat("loss, mean of agents", _or_dash(found["loss"], number)),
            stat(f"{split} accuracy, worst", _or_dash(correct, lambda value: f"{100 * value:.2f}"), "%"),
            stat("step time, median", _or_dash(step, lambda value: f"{1e3 * value:.3g}"), "ms"),
            stat("samples/s, mean", _or_dash(found["samples_per_second"], number)),
            stat("sent by all", _or_dash(found["bytes_sent"], size)),
            stat("rows", _or_dash(found["rows"], "{:,}".format)),
        ],
        className="cards stats",
    )


def accuracy(found: Mapping[str, Any]) -> tuple[str, float | None]:
    """The split and accuracy of a run's last evaluation: of the test split once that was looked at.

    >>> accuracy({"test_accuracy": None, "validation_accuracy": 0.5})
    ('validation', 0.5)
    """
    if found["test_accuracy"] is None and found["validation_accuracy"] is not None:
        return "validation", found["validation_accuracy"]
    return "test", found["test_accuracy"]


def duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> duration(0.25), duration(75.0), duration(7322.0)
    ('0.25 s', '1 min 15 s', '2 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _or_dash(value: Any, shown: Any) -> str:
    return "–" if value is None or (isinstance(value, float) and math.isnan(value)) else str(shown(value))


def _counted(verdict: Verdict) -> str:
    return f"n = {verdict.n} {verdict.sample_unit}" if verdict.n else ""


def _cell(value: Any) -> Component:
    kind = "number" if _is_number(value) else ""
    return html.Td(value if _is_component(value) else _text(value), className=kind)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_component(value: Any) -> bool:
    return hasattr(value, "_namespace")


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, datetime.datetime):
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"[:-3]
    text = one_line(str(value))
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
