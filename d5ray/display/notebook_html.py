"""HTML for notebooks: every text is escaped, nothing is a script, and colours fit light and dark pages"""

import html
import math
from collections.abc import Iterable, Sequence

from d5ray.display.visible_text import one_line

COLOURS = {"PASS": "#218a43", "FAIL": "#e0343f", "INCONCLUSIVE": "#a47008"}
LONGEST = 200  # characters of one cell
_LINE = "border-bottom:1px solid rgba(128,128,128,0.35)"
_CELL = "padding:2px 10px 2px 0;white-space:nowrap;vertical-align:top;background:none"


class Html(str):
    """Text that is HTML already."""


def text(value: object) -> Html:
    """Any value as HTML, escaped.

    >>> text("<script>")
    '&lt;script&gt;'
    >>> text(0.00260412), text(None)
    ('0.00260412', 'null')
    """
    if isinstance(value, Html):
        return value
    if isinstance(value, float):
        shown = f"{value:.6g}" if math.isfinite(value) else str(value)
    else:
        shown = "null" if value is None else str(value)
    if len(shown) > LONGEST:
        shown = shown[: LONGEST - 1] + "…"
    return Html(html.escape(one_line(shown)))


def table(names: Sequence[str], rows: Iterable[Sequence[object]], numeric: Sequence[bool] = ()) -> Html:
    """A table with a line of names, where there are any; what is numeric stands at the right."""
    right = [*numeric, *[False] * (len(names) - len(numeric))]
    sides = ["right" if each else "left" for each in right]
    head = "".join(
        f'<th style="{_CELL};{_LINE};text-align:{side};font-weight:600">{text(name)}</th>'
        for name, side in zip(names, sides, strict=True)
        if any(names)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_CELL};text-align:{side}">{text(value)}</td>'
            for value, side in zip(row, sides, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return Html(
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;font-size:13px;'
        f'font-variant-numeric:tabular-nums"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def title(*parts: object) -> Html:
    """A line in bold."""
    return Html(f'<div style="font-weight:600;margin:2px 0">{"&ensp;".join(map(text, parts))}</div>')


def small(value: object) -> Html:
    """A line in small letters; nothing where there is no text."""
    return Html(f'<div style="font-size:12px;opacity:0.75">{text(value)}</div>') if value else Html()


def word(verdict: str | None, shown_as: str = "") -> Html:
    """PASS, FAIL, INCONCLUSIVE in their colours, which white and black can carry; others as they are."""
    colour = COLOURS.get(verdict or "")
    shown = text(shown_as or verdict or "–")
    return Html(f'<b style="color:{colour}">{shown}</b>') if colour else shown


def block(*parts: Html) -> str:
    """Parts of a page, one below the other."""
    inner = "".join(parts)
    return f'<div style="font-family:system-ui,Helvetica,Arial,sans-serif;font-size:13px">{inner}</div>'
