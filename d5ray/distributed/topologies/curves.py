"""Curves between the circles of a picture; a point is a complex number in pixels, x + y·j, y downward"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

Places = np.ndarray[Any, np.dtype[np.complex128]]


@final
@dataclass(frozen=True)
class BezierCurve:
    """A cubic Bézier curve by its four points."""

    points: tuple[complex, complex, complex, complex]

    @property
    def path(self) -> str:
        """The curve as the `d` of an SVG path."""
        return "M{} C{} {} {}".format(*(text_of(point) for point in self.points))

    def at(self, part: float) -> complex:
        """The point after this part of the way, from 0 to 1."""
        a, b, c, d = self.points
        rest = 1 - part
        return rest**3 * a + 3 * rest**2 * part * b + 3 * rest * part**2 * c + part**3 * d

    def backwards(self) -> "BezierCurve":
        """The curve from its end to its start."""
        a, b, c, d = self.points
        return BezierCurve((d, c, b, a))

    def head(self, size: float) -> str:
        """An arrow head at the end, as the `points` of an SVG polygon."""
        tip = self.points[3]
        ahead = _unit(tip - self.points[2])
        corners = (tip, tip - size * ahead * (1 + 0.42j), tip - size * ahead * (1 - 0.42j))
        return " ".join(text_of(corner) for corner in corners)


def curve_between(places: Places, first: int, second: int, radius: float, aside: float) -> BezierCurve:
    """The curve from one circle to another: straight, or bowed around circles between; `aside` more."""
    start, end = complex(places[first]), complex(places[second])
    way = end - start
    seen = (places - start) / _unit(way)  # real: along the way, imaginary: aside of it
    between = (seen.real > radius) & (seen.real < abs(way) - radius) & (np.abs(seen.imag) < 1.1 * radius)
    if between.any():
        beyond = seen.imag[between].max() + 1.45 * radius, seen.imag[between].min() - 1.45 * radius
        aside += min(beyond, key=abs) / 0.6  # the curve gets that far over most of its way
    offset = 1j * _unit(way) * aside
    ahead = _unit(way) * min(radius + 0.05 * abs(way), 0.4 * abs(way))
    from_start, from_end = offset + ahead, offset - ahead
    tips = start + radius * _unit(from_start), end + radius * _unit(from_end)
    return BezierCurve((tips[0], start + from_start, end + from_end, tips[1]))


def text_of(point: complex) -> str:
    """A point as SVG writes it."""
    return f"{point.real:.1f},{point.imag:.1f}"


def _unit(way: complex) -> complex:
    return way / (abs(way) or 1.0)
