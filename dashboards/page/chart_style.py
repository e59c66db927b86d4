"""Style of charts: colours that the colour-blind can tell apart, axes with units, nothing that moves"""

import html
from collections.abc import Mapping, Sequence
from typing import Any

from d5ray.display.visible_text import one_line

# Okabe and Ito; black and yellow are left out, which vanish on dark and on light ground
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c8c8c")
PART_COLOURS = {
    "data": "#56b4e9", "forward": "#0072b2", "backward": "#009e73", "exchange": "#e69f00", "wait": "#d55e00",
    "update": "#cc79a7", "record": "#8c8c8c", "other": "#bdbdbd",
}  # fmt: skip
KIND_COLOURS = {
    "compute": "#0072b2", "communicate": "#e69f00", "wait": "#d55e00", "rest": "#a3a3a3", "serve": "#009e73",
}  # fmt: skip
SEQUENCE = [[0.0, "#56b4e9"], [0.5, "#e69f00"], [1.0, "#d55e00"]]  # from small to large
UNITS = {"1": "", "s": "s", "B": "B", "1/s": "1/s", "J": "J", "W": "W"}
CONFIG: Any = {"displaylogo": False, "displayModeBar": False, "responsive": True, "scrollZoom": False}
MARGIN = {"l": 64, "r": 16, "t": 12, "b": 46}


def plain(text: object) -> str:
    """Text of a run in a chart, where some HTML would count as such."""
    return html.escape(one_line(str(text)), quote=False)


def rgba(colour: str, opacity: float) -> str:
    """A colour that lets what is behind it through."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def labelled(name: str, unit: str) -> str:
    """An axis's title: what it is, and in which unit."""
    return f"{name.replace('_', ' ')} [{unit}]"


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {
        "title": {"text": plain(title), "font": {"size": 12}, "standoff": 8}, "automargin": False,
        "zeroline": False,
        "gridwidth": 1, "ticks": "", "tickfont": {"size": 11}, "showline": False, **more,
    }  # fmt: skip


def figure(
    traces: Sequence[Mapping[str, Any]], x: Mapping[str, Any], y: Mapping[str, Any], **layout: Any
) -> dict[str, Any]:
    """A chart. Its colours of ground, text and grid are the page's; what the viewer zoomed to stays."""
    return {
        "data": list(traces),
        "layout": {
            "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "margin": MARGIN,
            "font": {"family": "inherit", "size": 12}, "colorway": list(COLOURS), "xaxis": dict(x),
            "yaxis": dict(y), "hovermode": "closest", "dragmode": "zoom", "uirevision": "kept",
            "showlegend": len([t for t in traces if t.get("showlegend", True)]) > 1,
            "legend": {"orientation": "h", "traceorder": "normal", "x": 0, "y": 1.0, "yanchor": "bottom",
                       "font": {"size": 11},
                       "bgcolor": "rgba(0,0,0,0)"},
            "hoverlabel": {"font": {"size": 12}, "namelength": -1},
            **layout,
        },
    }  # fmt: skip


def empty(why: str) -> dict[str, Any]:
    """A chart without data, and the reason."""
    note = {"text": plain(why), "showarrow": False, "xref": "paper", "yref": "paper", "x": 0.5, "y": 0.5,
            "font": {"size": 13}}  # fmt: skip
    hidden = {"visible": False}
    return figure([], hidden, hidden, annotations=[note])
