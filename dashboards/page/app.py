"""The Dash application: which view of which run is shown, and what changes it"""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

from dash import ALL, MATCH, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.exceptions import PreventUpdate

from d5ray.dashboards.page import blocks, guard, live, sections, tables
from d5ray.dashboards.page.charts import ChartOptions
from d5ray.dashboards.page.runs import OpenRun, Runs, answer
from d5ray.errors import D5Error
from d5ray.metrics.views import samples
from d5ray.metrics.views.run_labels import besides, in_words

FOLLOW_MS = 1000  # between two looks for new rows
MOST_ALIKE = 100  # runs of a recipe, the newest, from which one is told
ASSETS = Path(__file__).parent / "assets"


def made_for(runs: Runs, first: str) -> Dash:
    """The application on these runs; first: the run that is shown before another one is chosen."""
    app = Dash(
        __name__,
        title="d5ray",
        update_title="",
        assets_folder=str(ASSETS),
        suppress_callback_exceptions=True,
        serve_locally=True,
    )
    app.layout = _layout
    place = _Place(runs, first)
    _route(app, place)
    _follow(app, place)
    _draw(app, place)
    _browse(app, place)
    return app


def _layout() -> Any:
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="tick", data=0),
            dcc.Interval(id="clock", interval=FOLLOW_MS, disabled=True),
            html.Header(
                [
                    html.Span("d5ray", className="brand"),
                    html.Div(
                        dcc.Dropdown(id="run", clearable=False, placeholder="run"),
                        className="chooser",
                        title="Run",
                    ),
                    html.Span(id="state", role="status"),
                ]
            ),
            html.Nav(id="navigation"),
            html.Main(id="content"),
            dcc.Graph(id="ahead", style={"display": "none"}),  # loads what draws, while the rest is made
        ]
    )


class _Place:
    """The view that an address of the page stands for."""

    def __init__(self, runs: Runs, first: str) -> None:
        self.runs, self.first = runs, first

    def name(self, search: str | None) -> str:
        """The run's."""
        return parse_qs((search or "").lstrip("?")).get("run", [self.first])[0]

    def view(self, search: str | None) -> str:
        """One of `VIEWS`."""
        return parse_qs((search or "").lstrip("?")).get("view", ["overview"])[0]

    def open_run(self, search: str | None) -> OpenRun:
        """The run; raises D5Error."""
        return self.runs.get(self.name(search))

    def look(self, values: list[Any], ids: list[dict[str, str]], bounds: list[float] | None) -> ChartOptions:
        """The viewer's choices."""
        chosen = {each["choice"]: value for each, value in zip(ids, values, strict=True)}
        low, high = bounds or (None, None)
        return ChartOptions(
            over="seconds" if chosen.get(blocks.OVER) == "seconds" else "step",
            low=low,
            high=high,
            metric=chosen.get("metric") or "",
            colour=chosen.get("colour") or "",
            others=tuple(self.runs.get(name) for name in chosen.get("others") or []),
        )


def _route(app: Dash, place: _Place) -> None:
    @app.callback(
        Output("content", "children"), Output("navigation", "children"), Output("run", "options"),
        Output("run", "value"), Output("clock", "disabled"), Output("state", "children"),
        Input("url", "search"),
    )  # fmt: skip
    def show(search: str | None) -> Any:
        name, view = place.name(search), place.view(search)
        known = place.runs.rows()
        options = [{"label": _listed(row), "value": row["run_id"], "search": row["run_id"]} for row in known]
        links = sections.navigation(name, view)
        try:
            if view not in sections.VIEWS:
                return _error(f"There is no view {view!r}."), links, options, name, True, ""
            shown = place.open_run(search)
            shown.refresh()
            content = [_what(shown, known), *sections.VIEWS[view][1](place.runs, shown)]
            shown.seen.set()
            return content, links, options, name, not shown.view.running, _state(shown)
        except D5Error as error:
            return _error(str(error)), links, options, None, True, ""

    @app.callback(
        Output("url", "search"), Input("run", "value"), State("url", "search"), prevent_initial_call=True
    )
    def choose(name: str | None, search: str | None) -> Any:
        if name is None or name == place.name(search):
            raise PreventUpdate
        return f"?run={quote(name)}&view={place.view(search)}"


def _follow(app: Dash, place: _Place) -> None:
    @app.callback(
        Output("tick", "data"), Output("clock", "disabled", allow_duplicate=True),
        Output("state", "children", allow_duplicate=True),
        Input("clock", "n_intervals"), State("url", "search"), State("tick", "data"),
        prevent_initial_call=True,
    )  # fmt: skip
    def look(_: int, search: str | None, known: int) -> Any:
        try:
            shown = place.open_run(search)
            version = shown.refresh()
        except D5Error as error:
            return no_update, True, html.Span(str(error), className="badge fail")
        if version == known and shown.view.running:
            raise PreventUpdate
        return version, not shown.view.running, _state(shown)


def _draw(app: Dash, place: _Place) -> None:
    choices = Input({"choice": ALL}, "value"), State({"choice": ALL}, "id")

    @app.callback(
        Output({"type": "chart", "name": MATCH}, "figure"), Output({"type": "drawn", "name": MATCH}, "data"),
        Input({"type": "chart", "name": MATCH}, "relayoutData"), Input("tick", "data"), *choices,
        State({"type": "drawn", "name": MATCH}, "data"), State({"type": "drawn", "name": MATCH}, "id"),
        State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def draw(
        moved: dict[str, Any] | None, _: int, values: list[Any], ids: list[dict[str, str]],
        drawn: dict[str, Any], chart: dict[str, str], search: str | None,
    ) -> Any:  # fmt: skip
        name, cause, bounds = chart["name"], ctx.triggered_id, drawn["bounds"]
        plotted = isinstance(cause, dict) and "type" in cause
        if plotted and name not in blocks.STILL and (zoomed := _zoomed(moved)) is not None:
            plotted, bounds = False, zoomed or None
        elif isinstance(cause, dict) and cause.get("choice") == blocks.OVER:
            bounds = None
        try:
            look = place.look(values, ids, bounds)
            # A plot that stands there says so, and Dash drops what is still being made of a choice before.
            if plotted and look.chosen == drawn["chosen"]:
                raise PreventUpdate
            figure = blocks.drawn(name, place.open_run(search), look)
        except D5Error:
            raise PreventUpdate from None
        return figure, {"bounds": bounds, "chosen": look.chosen}

    @app.callback(
        Output({"type": "live", "name": MATCH}, "children"),
        Input("tick", "data"), *choices, State({"type": "live", "name": MATCH}, "id"),
        State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def fill(
        _: int, values: list[Any], ids: list[dict[str, str]], part: dict[str, str], search: str | None
    ) -> Any:
        if ctx.triggered_id != "tick" and part["name"] != "beside":
            raise PreventUpdate
        try:
            return live.LIVE[part["name"]](place.open_run(search), place.look(values, ids, None))
        except D5Error as error:
            return _error(str(error))


def _browse(app: Dash, place: _Place) -> None:
    @app.callback(
        Output("samples", "children"), Output("place", "children"), Output("page-number", "data"),
        Input("filter-metric", "value"), Input("filter-rank", "value"), Input("filter-phase", "value"),
        Input("filter-text", "value"), Input("filter-first", "value"), Input("filter-last", "value"),
        Input("newer", "n_clicks"), Input("older", "n_clicks"), State("page-number", "data"),
        State("url", "search"),
    )  # fmt: skip
    def browse(
        metric: str | None, rank: int | None, phase: str | None, text: str | None, first: int | None,
        last: int | None, _newer: int, _older: int, number: int, search: str | None,
    ) -> Any:  # fmt: skip
        number = {"newer": max(0, number - 1), "older": number + 1}.get(str(ctx.triggered_id), 0)
        chosen = samples.Filter(metric, rank, phase, text or "", first, last)
        try:
            found = tables.of_samples(place.open_run(search), chosen, number)
        except D5Error as error:
            return _error(str(error)), "", 0
        if found is None:
            raise PreventUpdate
        return *found, number

    @app.callback(
        Output("answer", "children"), Output("told", "children"), Input("ask", "n_clicks"),
        State("query", "value"), State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def ask(clicks: int, text: str | None, search: str | None) -> Any:
        if not clicks:
            raise PreventUpdate
        try:
            found, told = answer(place.open_run(search), text or "", guard.client_gone())
        except D5Error as error:
            return _error(str(error)), ""
        return (_error(told), "") if found is None else (tables.of_arrow(found), told)


def _zoomed(moved: dict[str, Any] | None) -> list[float] | None:
    """The part of the horizontal axis that was chosen; [] for the whole; None where it did not change."""
    moved = moved or {}
    if "xaxis.range[0]" in moved:
        return [float(moved["xaxis.range[0]"]), float(moved["xaxis.range[1]"])]
    return [] if "xaxis.autorange" in moved else None


def _state(shown: OpenRun) -> Any:
    row = shown.view.row
    if shown.view.running:
        told = "reading what is there" if shown.view.behind else "follows the run"
        return [html.Span(told, className="faint"), html.Span("running", className="badge live")]
    verdict = [tables.badge(row["verdict"])] if row["verdict"] else []
    return [*verdict, tables.badge(row["status"])]


def _listed(row: dict[str, Any]) -> str:
    """A run in the list of runs: its name, what it is, and what it came to."""
    return "  ·  ".join(filter(None, (row["run_id"], in_words(row), row["verdict"] or row["status"])))


def _what(shown: OpenRun, known: list[dict[str, Any]]) -> Any:
    """What the run is, above every view of it, and how it differs from others of its recipe."""
    row = shown.view.row
    alike = [each for each in known if each["recipe"] == row["recipe"] and each["run_id"] != shown.name]
    other = besides([row, *alike[:MOST_ALIKE]])[0]
    told = ", ".join(filter(None, (in_words(row, short=False), f"seed {row['seed']}")))
    told += f"; unlike others: {other}" if other else ""
    return html.P(told, className="faint", id="what")


def _error(text: str) -> Any:
    return html.Div(text, className="error", role="alert")
