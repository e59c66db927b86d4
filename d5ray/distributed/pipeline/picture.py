"""A pass of a pipeline as a picture: an SVG that needs nothing else, and lines of text"""

import html
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Protocol

from d5ray.distributed.pipeline.actions import Action, Forward, Span

MOST_SPANS = 4000  # in a notebook, without being asked
INK, FAINT, IDLE = "#1a202c", "#52606d", "#eef1f4"
FORWARD, BACKWARD = "#0072b2", "#009e73"  # Okabe and Ito
ROW, GAP, LEFT, HEADER, FOOTER = 26.0, 6.0, 64.0, 58.0, 30.0  # pixels; so are all lengths
NARROWEST, WIDEST = 420.0, 1400.0
WIDTH = 120  # characters of the text, at most


class Spans(Protocol):
    """The drawn part of a timetable: the spans of every stage in order, and the seconds of the whole."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def stages(self) -> tuple[tuple[Span, ...], ...]: ...
    @property
    def seconds(self) -> float: ...


def as_svg(table: Spans, path: str | PathLike[str] | None = None) -> str:
    """The picture; also written to `path`."""
    inner = min(WIDEST, max(NARROWEST, 18.0 * _units(table)))
    width, rows = LEFT + inner + 14, len(table.stages)
    height = HEADER + rows * (ROW + GAP) + FOOTER
    scale = inner / (table.seconds or 1.0)
    text = "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" '
            'font-family="system-ui, Helvetica, Arial, sans-serif">',
            f"<title>{html.escape(f'{table.name}: {table.title}')}</title>",
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="12" y="26" font-size="15" font-weight="600" fill="{INK}">'
            f"{html.escape(table.name)}</text>",
            f'<text x="12" y="46" font-size="12.5" fill="{FAINT}">{html.escape(table.title)}</text>',
            *(line for stage in range(rows) for line in _row(table, stage, inner, scale)),
            *_legend(height),
            "</svg>\n",
        ]
    )
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def as_text(table: Spans) -> str:
    """The timetable in characters: forward passes light, backward dark, by the micro-batch's number."""
    chunks = _chunks(table)
    longest = max((len(_label(span.action, chunks)) for row in table.stages for span in row), default=1)
    width = min(WIDTH, max(1, round(_units(table) * (longest + 1))))
    lines = [f"{table.name}: {table.title}"]
    for stage, spans in enumerate(table.stages):
        cells = [" "] * width
        for span in spans:
            begin, end = (round(at / (table.seconds or 1.0) * width) for at in (span.begin, span.end))
            label = _label(span.action, chunks)
            fill = "░" if isinstance(span.action, Forward) else "▓"
            shown = label if len(label) <= end - begin else ""
            cells[begin:end] = [*shown, *[fill] * (end - begin - len(shown))]
        lines.append(f"stage {stage:<2} {''.join(cells)}".rstrip())
    return "\n".join(lines)


def _row(table: Spans, stage: int, inner: float, scale: float) -> Iterator[str]:
    top, chunks = HEADER + stage * (ROW + GAP), _chunks(table)
    middle = top + ROW / 2 + 4
    yield f'<text x="12" y="{middle:.1f}" font-size="12" fill="{INK}">stage {stage}</text>'
    yield f'<rect x="{LEFT}" y="{top:.1f}" width="{inner:.1f}" height="{ROW}" fill="{IDLE}"/>'
    for span in table.stages[stage]:
        left, wide = LEFT + span.begin * scale, span.seconds * scale
        colour = FORWARD if isinstance(span.action, Forward) else BACKWARD
        opacity = 1.0 - 0.45 * span.action.chunk / max(1, chunks - 1)
        told = f"{span.action}: {span.seconds:.4g} s".replace("the ", "", 1)
        yield (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(0.3, wide - 0.7):.1f}" height="{ROW}" '
            f'fill="{colour}" fill-opacity="{opacity:.2g}"><title>{html.escape(told)}</title></rect>'
        )
        label = _label(span.action, chunks)
        if wide >= 6.5 * len(label) + 2:
            yield (
                f'<text x="{left + wide / 2:.1f}" y="{middle:.1f}" font-size="11" text-anchor="middle" '
                f'fill="{"white" if opacity > 0.8 else INK}">{label}</text>'
            )


def _legend(height: float) -> Iterator[str]:
    place = LEFT
    for colour, word in ((FORWARD, "forward"), (BACKWARD, "backward"), (IDLE, "idle")):
        yield f'<rect x="{place}" y="{height - 21:.1f}" width="12" height="12" fill="{colour}"/>'
        yield (f'<text x="{place + 17}" y="{height - 11:.1f}" font-size="11" fill="{FAINT}">{word}</text>')
        place += 84


def _label(action: Action, chunks: int) -> str:
    """The micro-batch's number; with several chunks a letter for the chunk."""
    return f"{action.micro}{chr(ord('a') + action.chunk % 26)}" if chunks > 1 else str(action.micro)


def _chunks(table: Spans) -> int:
    return 1 + max((span.action.chunk for row in table.stages for span in row), default=0)


def _units(table: Spans) -> float:
    """The length of the pass in its shortest spans."""
    spans: list[Span] = [span for row in table.stages for span in row if span.seconds > 0]
    return table.seconds / min((span.seconds for span in spans), default=1.0)
