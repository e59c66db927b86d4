"""The parts of the page beside its charts that change while a run goes on"""

from collections.abc import Callable
from typing import Any

from dash import html

from d5ray.dashboards.page import tables, topology
from d5ray.dashboards.page.charts import ChartOptions
from d5ray.dashboards.page.runs import OpenRun
from d5ray.dashboards.quantities import number, size
from d5ray.metrics.judge.comparable import incomparable
from d5ray.metrics.views import communication, events, key_figures
from d5ray.metrics.views.run_labels import besides, in_words, place_of

Component = Any
MOST_EVENTS = 200


def live(name: str, shown: OpenRun, look: ChartOptions | None = None) -> Component:
    """A part that is made anew when something has come."""
    return html.Div(
        LIVE[name](shown, look or ChartOptions()), id={"type": "live", "name": name}, className="live"
    )


def _stats(shown: OpenRun, look: ChartOptions) -> Component:
    return tables.stats(shown.ask(key_figures.figures))


def _verdict(shown: OpenRun, look: ChartOptions) -> Component:
    found = shown.verdict()
    if not found.num_rows:
        return html.P(
            "This run has no criteria: it comes from no recipe, or from an older version.", className="faint"
        )
    title = "Verdict" if shown.view.row["verdict"] else "Verdict so far"
    word = shown.view.row["verdict"] or ""
    known = shown.view.ask("SELECT * FROM metrics").to_pylist()
    return html.Section(
        [html.H2([title, " ", *([tables.badge(word)] if word else [])]), tables.verdicts(found, known)]
    )


def _traffic(shown: OpenRun, look: ChartOptions) -> Component:
    found = shown.ask(communication.edges).to_pylist()
    if not found:
        return html.P("Nothing is known of this run's links.", className="faint")
    rows = sorted(found, key=lambda row: -row["bytes"])[:MOST_EVENTS]
    for row in rows:
        row["sender"], row["receiver"] = topology.called(row["sender"]), topology.called(row["receiver"])
        row["amount"], row["how"] = (
            size(row["bytes"]),
            "counted" if row["counted"] else "equal parts of what was sent",
        )
    return tables.table(rows, {"sender": "from", "receiver": "to", "amount": "amount", "how": "known by"})


def _events(shown: OpenRun, look: ChartOptions) -> Component:
    rows = shown.ask(events.events).to_pylist()[::-1][:MOST_EVENTS]
    if not rows:
        return html.P("Nothing has happened besides the steps.", className="faint")
    for row in rows:
        row["at"] = f"{row['seconds']:.3f}"
        row["class"] = "failure" if row["failure"] else ""
        row["kind"] = f"✕ {row['name']}" if row["failure"] else row["name"]
        row["took"] = None if row["duration"] is None else f"{row['duration']:.4g}"
    columns = {"at": "time [s]", "kind": "event", "agent": "of", "rank": "rank", "step": "step",
               "took": "took [s]", "detail": "detail"}  # fmt: skip
    return tables.table(rows, columns)


def _beside(shown: OpenRun, look: ChartOptions) -> Component:
    runs = (shown, *look.others)
    rows = [dict(run.ask(key_figures.figures)) for run in runs]
    described = [run.view.row for run in runs]
    for at, (row, other) in enumerate(zip(rows, besides(described), strict=True)):
        told = ", ".join(filter(None, (in_words(described[at]), other)))
        row["word"] = row["verdict"] or row["status"]
        row["what"] = html.Span(told, className="long")
        row["name"] = html.Span([html.I(className=f"dot c{at % 7}"), row["run"]])
        _, accuracy = tables.accuracy(row)
        row["accuracy"] = None if accuracy is None else f"{100 * accuracy:.2f}"
        row["ms"] = None if row["step_time"] is None else f"{1e3 * row['step_time']:.3g}"
        row["rate"] = None if row["samples_per_second"] is None else number(row["samples_per_second"])
        row["sent"] = None if row["bytes_sent"] is None else size(row["bytes_sent"])
        row["took"] = None if row["seconds"] is None else tables.duration(row["seconds"])
    columns = {
        "name": "run", "what": "what it is", "seed": "seed", "word": "came to",
        "steps": "steps", "took": "time", "loss": "mean loss", "accuracy": "worst accuracy [%]",
        "ms": "median step [ms]", "rate": "mean samples/s", "sent": "sent by all",
    }  # fmt: skip
    reasons = incomparable([run.view.run for run in runs])
    if reasons:
        note = f"They cannot be compared, since these differ: {'; '.join(reasons)}."
    elif any(row["recipe_hash"] for row in rows):
        note = (
            "What is FIXED and the data are the same: they can be compared, see d5ray compare for a verdict."
        )
    else:
        note = "They come from no recipe: nothing says in what they had to be alike."
    if len({place_of(row) for row in described}) > 1:
        note += " Some are simulated and some are real: their times are of different clocks."
    return html.Section([tables.table(rows, columns), html.P(note, className="faint")], className="panel")


LIVE: dict[str, Callable[[OpenRun, ChartOptions], Component]] = {
    "stats": _stats, "verdict": _verdict, "traffic": _traffic, "events": _events, "beside": _beside,
}  # fmt: skip
