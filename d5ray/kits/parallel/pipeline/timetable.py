"""Timetable of a pipeline's stages, predicted or measured: bubble, busy and idle time, and its picture"""

import html
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import final

from d5ray.kits.parallel.pipeline.actions import Action, Forward, Span

MOST_SPANS = 4000  # in a notebook, without being asked
INK, FAINT, IDLE = "#1a202c", "#52606d", "#eef1f4"
FORWARD, BACKWARD = "#0072b2", "#009e73"  # Okabe and Ito
ROW, GAP, LEFT, HEADER, FOOTER = 26.0, 6.0, 64.0, 58.0, 30.0  # pixels; so are all lengths
NARROWEST, WIDEST = 420.0, 1400.0
WIDTH = 120  # characters of the text, at most


@final
@dataclass(frozen=True, repr=False)
class Timetable:
    """A pass of a pipeline: the spans of every stage, in their order. A notebook shows the picture.

    seconds: of the whole pass, from its begin at 0.
    """

    name: str
    stages: tuple[tuple[Span, ...], ...]
    seconds: float

    @property
    def busy_seconds(self) -> tuple[float, ...]:
        """The seconds in which each stage computes."""
        return tuple(sum(span.seconds for span in spans) for spans in self.stages)

    @property
    def bubble(self) -> float:
        """The share of the pass (0..1) in which a stage does not compute, on average over the stages."""
        whole = len(self.stages) * self.seconds
        return 1 - sum(self.busy_seconds) / whole if whole else 0.0

    @property
    def title(self) -> str:
        """The number of stages, the seconds and the bubble on one line."""
        stages = len(self.stages)
        return f"{stages} stage{'s' * (stages != 1)} · {self.seconds:.4g} s · bubble {self.bubble:.1%}"

    def draw(self, path: str | PathLike[str] | None = None) -> str:
        """A row for each stage as an SVG, which is also written to `path`: forward blue, backward green."""
        return _as_svg(self, path)

    def _repr_svg_(self) -> str | None:
        """The picture, in a notebook; none of a pass so long that nobody could read it."""
        return self.draw() if sum(map(len, self.stages)) <= MOST_SPANS else None

    def __str__(self) -> str:
        return _as_text(self)

    def __repr__(self) -> str:
        return f"Timetable({self.name}: {self.title})"


def _as_svg(table: Timetable, path: str | PathLike[str] | None = None) -> str:
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


def _as_text(table: Timetable) -> str:
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


def _row(table: Timetable, stage: int, inner: float, scale: float) -> Iterator[str]:
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


def _chunks(table: Timetable) -> int:
    return 1 + max((span.action.chunk for row in table.stages for span in row), default=0)


def _units(table: Timetable) -> float:
    """The length of the pass in its shortest spans."""
    spans: list[Span] = [span for row in table.stages for span in row if span.seconds > 0]
    return table.seconds / min((span.seconds for span in spans), default=1.0)
