"""Performance profiles as a picture: an SVG that needs nothing else"""

import html
import math
from collections.abc import Iterator, Mapping
from itertools import pairwise

import pyarrow as pa

from d5ray.metrics.judge.performance_profiles import (
    MEASURES,
    WORST_RATIO,
    medians_of,
    ratios_of,
    score,
    share,
)

Ratios = Mapping[str, Mapping[str, float]]

# All lengths in pixels.
WIDTH, HEIGHT = 320.0, 240.0  # of a panel's axes
LEFT, TOP, BETWEEN = 52.0, 72.0, 44.0
LEGEND, LINE = 236.0, 19.0
INK, FAINT, GRID = "#1a202c", "#52606d", "#d9dee4"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")  # Okabe and Ito
DASHES = ("", "7 3", "2 3", "9 3 2 3")  # when the colours begin again
APART = 1.6  # between lines of equal value, so that none hides another
PANELS = {"steps": "by steps", "seconds": "by seconds"}


def picture(run: Mapping[str, pa.Table]) -> str:
    """ρ(τ) of every optimizer, by steps and by seconds, with the scores in the legend.

    Lines are drawn a little apart, one above the other, so that equal ones can be told from each other.
    """
    found = {by: ratios_of(medians_of(run, MEASURES[by])) for by in PANELS}
    names = sorted(
        (name for name, own in found["steps"].items() if own),
        key=lambda name: -score(found["steps"][name]),
    )
    workloads = len(next(iter(found["steps"].values()), {}))
    width = LEFT + len(PANELS) * (WIDTH + BETWEEN) + LEGEND
    height = TOP + max(HEIGHT, (len(names) + 2) * LINE) + 48
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, Helvetica, Arial, sans-serif">',
        "<title>Performance profile</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        text_at(LEFT, 24, "Performance profile", size=15, weight=600),
        text_at(
            LEFT,
            42,
            f"share of {workloads} workload{'s' * (workloads != 1)} whose target was reached within τ times "
            "the least of all optimizers",
            size=12,
            colour=FAINT,
        ),
    ]
    for place, (by, title) in enumerate(PANELS.items()):
        left = LEFT + place * (WIDTH + BETWEEN)
        lines += _axes(left, title)
        for index, name in enumerate(names):
            lines.append(_curve(left, index, found[by].get(name, {})))
    lines += _legend(LEFT + len(PANELS) * (WIDTH + BETWEEN), names, found)
    return "\n".join([*lines, "</svg>\n"])


def _axes(left: float, title: str) -> Iterator[str]:
    yield text_at(left + WIDTH / 2, TOP - 5, title, size=12, weight=600, anchor="middle")
    for quarter in range(5):
        y = _y(quarter / 4)
        yield f'<path d="M{left:.1f} {y:.1f} h{WIDTH:.1f}" stroke="{GRID}"/>'
        yield text_at(left - 7, y + 4, f"{quarter / 4:g}", colour=FAINT, anchor="end")
    for tau in range(1, int(WORST_RATIO) + 1):
        x = _x(left, tau)
        yield f'<path d="M{x:.1f} {TOP + 3:.1f} V{TOP + HEIGHT:.1f}" stroke="{GRID}"/>'
        yield text_at(x, TOP + HEIGHT + 16, f"{tau}", colour=FAINT, anchor="middle")
    yield text_at(left + WIDTH / 2, TOP + HEIGHT + 33, "τ", colour=FAINT, anchor="middle")


def _curve(left: float, index: int, ratios: Mapping[str, float]) -> str:
    """The steps of one optimizer: from τ = 1 to 4, up where one of its ratios is."""
    if not ratios:
        return ""
    ups = sorted({1.0, *(ratio for ratio in ratios.values() if math.isfinite(ratio)), WORST_RATIO})
    shift = index * APART
    path = f"M{_x(left, 1):.1f} {_y(share(ratios, 1)) - shift:.1f}"
    for _, tau in pairwise(ups):
        path += f" H{_x(left, tau):.1f} V{_y(share(ratios, tau)) - shift:.1f}"
    return f'<path d="{path}" fill="none" {_stroke(index)}/>'


def _legend(left: float, names: list[str], found: Mapping[str, Ratios]) -> Iterator[str]:
    for place, by in enumerate(PANELS):
        yield text_at(left + 156 + 52 * place, TOP + 8, by, size=11, colour=FAINT, anchor="end")
    for index, name in enumerate(names):
        y = TOP + 10 + (index + 1) * LINE
        yield f'<path d="M{left:.1f} {y - 4:.1f} h24" {_stroke(index)}/>'
        yield text_at(left + 31, y, name if len(name) <= 14 else name[:13] + "…")
        for place, by in enumerate(PANELS):
            own = found[by].get(name)
            shown = f"{score(own):.2f}" if own else "–"
            yield text_at(left + 156 + 52 * place, y, shown, anchor="end")


def _stroke(index: int) -> str:
    dash = DASHES[index // len(COLOURS) % len(DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="2"{dashed}'


def text_at(
    x: float,
    y: float,
    text: str,
    *,
    size: float = 12,
    colour: str = INK,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    """A line of text in an SVG."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" fill="{colour}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{html.escape(text)}</text>'
    )


def _x(left: float, tau: float) -> float:
    return left + (tau - 1) / (WORST_RATIO - 1) * WIDTH


def _y(part: float) -> float:
    return TOP + HEIGHT - part * (HEIGHT - 20)
