"""A roofline as a picture: how quick operators were, below what this machine's peaks allow; an SVG

Williams, Waterman and Patterson, doi 10.1145/1498765.1498785. Both axes are logarithmic: operations a byte
that must be moved, operations a second. The roof is the lesser of the peak and of intensity × bandwidth.
"""

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from d5ray.dashboards.pictures.profile_picture import COLOURS, FAINT, GRID, INK
from d5ray.dashboards.pictures.profile_picture import text_at as _text
from d5ray.dashboards.terminal.operator_tables import Measured

# All lengths in pixels.
WIDTH, HEIGHT = 620.0, 400.0  # of the axes
LEFT, TOP, BELOW, RIGHT, LINE = 72.0, 64.0, 52.0, 190.0, 20.0
SIZE: Final = 4.5  # of a mark, half its width
PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


@final
@dataclass(frozen=True)
class Axes:
    """Exponents of ten that the axes go from and to."""

    low: tuple[int, int]
    high: tuple[int, int]

    def x(self, intensity: float) -> float:
        """The horizontal place in pixels of an intensity in operations per byte."""
        return LEFT + self._share(0, intensity) * WIDTH

    def y(self, rate: float) -> float:
        """The vertical place in pixels of a rate in operations per second, counted from the top."""
        return TOP + (1 - self._share(1, rate)) * HEIGHT

    def _share(self, axis: int, value: float) -> float:
        return (math.log10(value) - self.low[axis]) / (self.high[axis] - self.low[axis])


def picture(found: Sequence[Measured], flops: float, moved: float, title: str) -> str:
    """Every problem as a mark: the colour is the framework's, the form its group's.

    flops, moved: the peaks, operations and bytes a second.
    """
    axes = _axes(found, flops)
    frameworks = list(dict.fromkeys(each.framework for each in found))
    groups = list(dict.fromkeys(each.group for each in found))
    width, height = LEFT + WIDTH + RIGHT, TOP + HEIGHT + BELOW
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, Helvetica, Arial, sans-serif">',
        f"<title>{html.escape(title)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        _text(LEFT, 26, title, size=15, weight=600),
        _text(
            LEFT,
            46,
            f"peaks measured in this run: {_rate(flops, 'FLOP/s')} in a square product, "
            f"{_rate(moved, 'B/s')} in a copy",
            colour=FAINT,
        ),
        *_grid(axes),
        *_roof(axes, flops, moved),
    ]
    for each in found:
        colour = COLOURS[frameworks.index(each.framework) % len(COLOURS)]
        at = axes.x(each.intensity), axes.y(each.flops_per_second)
        lines.append(_mark(*at, groups.index(each.group), colour, f"{each.framework}, {each.problem}"))
    left = LEFT + WIDTH + 24
    for number, name in enumerate(frameworks):
        y = TOP + 12 + number * LINE
        lines.append(_mark(left, y - 4, 0, COLOURS[number % len(COLOURS)], name))
        lines.append(_text(left + 14, y, name))
    for number, name in enumerate(groups):
        y = TOP + 12 + (len(frameworks) + 0.5 + number) * LINE
        lines.append(_mark(left, y - 4, number, FAINT, name))
        lines.append(_text(left + 14, y, name))
    return "\n".join([*lines, "</svg>"]) + "\n"


def _axes(found: Sequence[Measured], flops: float) -> Axes:
    intensities = [each.intensity for each in found] or [1.0]
    rates = [each.flops_per_second for each in found] + [flops]
    low = math.floor(math.log10(min(intensities))), math.floor(math.log10(min(rates)))
    high = math.ceil(math.log10(max(intensities) * 1.2)), math.ceil(math.log10(max(rates) * 1.2))
    return Axes(low, (max(high[0], low[0] + 1), max(high[1], low[1] + 1)))


def _grid(axes: Axes) -> Iterator[str]:
    """A line and a number for every power of ten, and what the axes are."""
    for power in range(axes.low[0], axes.high[0] + 1):
        x = axes.x(10.0**power)
        yield _line(x, TOP, x, TOP + HEIGHT, GRID)
        yield _text(x, TOP + HEIGHT + 18, f"{10.0**power:g}", anchor="middle")
    for power in range(axes.low[1], axes.high[1] + 1):
        y = axes.y(10.0**power)
        yield _line(LEFT, y, LEFT + WIDTH, y, GRID)
        yield _text(LEFT - 8, y + 4, _rate(10.0**power, "FLOP/s").removesuffix("FLOP/s"), anchor="end")
    yield _text(LEFT + WIDTH / 2, TOP + HEIGHT + 40, "FLOP a byte that must be moved", anchor="middle")
    middle = TOP + HEIGHT / 2
    yield (
        f'<text x="18" y="{middle:.1f}" font-size="12" fill="{INK}" text-anchor="middle" '
        f'transform="rotate(-90 18 {middle:.1f})">FLOP/s</text>'
    )


def _roof(axes: Axes, flops: float, moved: float) -> Iterator[str]:
    """Rising with the bandwidth to the ridge, then level; as far as the axes show it."""
    left, right = 10.0 ** axes.low[0], 10.0 ** axes.high[0]
    floor = 10.0 ** axes.low[1]
    ridge = flops / moved
    start = max(left, floor / moved)
    points = [(start, min(flops, start * moved))]
    if start < ridge < right:
        points.append((ridge, flops))
    points.append((right, min(flops, right * moved)))
    path = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
    yield f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="2"/>'


def _mark(x: float, y: float, form: int, colour: str, name: str) -> str:
    """A circle, a square or a triangle, which says what it is where a pointer rests on it."""
    told = f"<title>{html.escape(name)}</title>"
    style = f'fill="{colour}" fill-opacity="0.75" stroke="white" stroke-width="0.7"'
    if form % 3 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{SIZE}" {style}>{told}</circle>'
    if form % 3 == 1:
        sides = f'width="{2 * SIZE}" height="{2 * SIZE}"'
        return f'<rect x="{x - SIZE:.1f}" y="{y - SIZE:.1f}" {sides} {style}>{told}</rect>'
    corners = f"{x:.1f},{y - SIZE:.1f} {x - SIZE:.1f},{y + SIZE:.1f} {x + SIZE:.1f},{y + SIZE:.1f}"
    return f'<polygon points="{corners}" {style}>{told}</polygon>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}"/>'


def _rate(value: float, unit: str) -> str:
    """`124 GFLOP/s`.

    >>> _rate(1.234e11, "FLOP/s"), _rate(1e9, "B/s")
    ('123 GFLOP/s', '1 GB/s')
    """
    power = min(max(int(math.log10(value) // 3), 0), len(PREFIXES) - 1) if value >= 1 else 0
    return f"{value / 1000**power:.3g} {PREFIXES[power]}{unit}"
