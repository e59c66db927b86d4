"""A difference as a picture: the relative difference of two arrays in colours, with a scale in numbers"""

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from d5ray.errors import ConfigurationError

if TYPE_CHECKING:
    from PIL import ImageDraw

Numbers = np.ndarray[Any, Any]
EPSILON: Final = 1e-12  # where both are nothing
MOST_PIXELS, FEWEST_PIXELS = 640, 160  # of the picture's longer side
MOST_PANELS: Final = 16  # of a 3-D array: slices along its first axis, the worst ones
GAP, MARGIN, BAR, TEXT = 8, 12, 18, 13  # pixels
INK, BROKEN, PAPER = (26, 32, 44), (0, 0, 0), (255, 255, 255)
# Blue for less than expected, white for equal, red for more (Moreland's diverging map, its ends and middle).
ENDS: Final = ((59, 76, 192), (245, 245, 245), (180, 4, 38))


def relative_difference(found: Numbers, expected: Numbers) -> Numbers:
    """2 (o − r) / (|o| + |r| + ε), from −2 to 2; NaN where one alone is not finite, 0 where both are one.

    >>> relative_difference(np.array([1.0, 3.0]), np.array([1.0, 1.0])).tolist()
    [0.0, 0.99999999999975]
    """
    o, r = (np.asarray(array).astype(np.float64) for array in (found, expected))
    same = (o == r) | (np.isnan(o) & np.isnan(r))
    with np.errstate(invalid="ignore", over="ignore"):
        difference = 2 * (o - r) / (np.abs(o) + np.abs(r) + EPSILON)
    broken = ~(np.isfinite(o) & np.isfinite(r))
    return np.where(same, 0.0, np.where(broken, np.nan, difference))


def heat_map(found: Numbers, expected: Numbers, title: str = "") -> bytes:
    """The picture as PNG. Arrays of any number of axes: those before the last two become one.

    One panel for a matrix or a vector; of more axes one for each slice, at most 16, those that differ most.
    Arrays with more elements than pixels show, in each pixel, the largest of what falls into it. The scale
    goes as far as the largest difference; black is what is finite on one side alone.
    """
    from PIL import Image, ImageDraw  # noqa: PLC0415 - only where a picture is asked for

    if np.shape(found) != np.shape(expected):
        raise ConfigurationError(
            f"the arrays have the shapes {np.shape(found)} and {np.shape(expected)}: they must be alike"
        )
    difference = relative_difference(found, expected)
    finite = np.abs(difference[np.isfinite(difference)])
    reach = float(finite.max()) if finite.size and finite.max() else 0.0
    panels = _panels(difference)
    columns = math.ceil(math.sqrt(len(panels)))
    rows = math.ceil(len(panels) / columns)
    sized = [_sized(panel, columns) for _, panel in panels]
    high, wide = sized[0].shape[:2]
    label = TEXT + 3 if len(panels) > 1 else 0
    lines = _headline(difference, title)
    longest = max(ImageDraw.Draw(Image.new("RGB", (1, 1))).textlength(line) for line in lines)
    width = 2 * MARGIN + max(columns * (wide + GAP) - GAP, math.ceil(longest))
    top = MARGIN + 2 * (TEXT + 3) + GAP
    height = top + rows * (high + label + GAP) + BAR + TEXT + 2 * MARGIN
    image = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        _line(draw, MARGIN, MARGIN + number * (TEXT + 3), line)
    for number, ((name, _), panel) in enumerate(zip(panels, sized, strict=True)):
        left = MARGIN + number % columns * (wide + GAP)
        above = top + number // columns * (high + label + GAP)
        if label:
            _line(draw, left, above, name)
        image.paste(Image.fromarray(_coloured(panel, reach)), (left, above + label))
        draw.rectangle((left - 1, above + label - 1, left + wide, above + label + high), outline=INK)
    _scale(image, draw, reach, height - MARGIN - TEXT - 3 - BAR, width)
    written = io.BytesIO()
    image.save(written, format="PNG")
    return written.getvalue()


def _headline(difference: Numbers, title: str) -> tuple[str, str]:
    """The picture's title, and how much of it differs."""
    what = "relative difference 2 (o - r) / (|o| + |r|)"
    differing, broken = np.count_nonzero(difference != 0), np.count_nonzero(np.isnan(difference))
    shape = " x ".join(map(str, difference.shape)) or "one number"
    told = f"{shape}: {differing} of {difference.size} elements differ"
    return f"{title}: {what}" if title else what, told + (f", {broken} not finite: black" if broken else "")


def _panels(difference: Numbers) -> list[tuple[str, Numbers]]:
    """Matrices, each with the index of its slice; the worst of too many, in their order."""
    if difference.ndim < 2:
        return [("", difference.reshape(1, -1))]
    leading = difference.shape[:-2]
    stacked = difference.reshape(math.prod(leading), *difference.shape[-2:])
    if not len(stacked):
        return [("", stacked.reshape(0, 1))]
    worst = np.nan_to_num(np.abs(stacked), nan=np.inf).reshape(len(stacked), -1).max(axis=1, initial=0.0)
    chosen = np.sort(np.argsort(-worst, kind="stable")[:MOST_PANELS])
    names = [", ".join(map(str, np.unravel_index(int(at), leading))) if leading else "" for at in chosen]
    return [(name, stacked[at]) for name, at in zip(names, chosen, strict=True)]


def _sized(panel: Numbers, columns: int) -> Numbers:
    """A panel of a good number of pixels: each the largest of several elements, or several of one."""
    longest = max(MOST_PIXELS // columns, FEWEST_PIXELS)
    panel = panel if panel.size else np.zeros((1, 1))
    for axis in (0, 1):
        by = math.ceil(panel.shape[axis] / longest)
        if by > 1:
            panel = _pooled(panel, axis, by)
    wanted = max(FEWEST_PIXELS, longest // 2)
    by = max(1, wanted // max(panel.shape))
    panel = np.repeat(np.repeat(panel, by, axis=0), by, axis=1)
    thin = max(1, 12 // panel.shape[0])  # a vector is a band that can be seen
    return np.repeat(panel, thin, axis=0)


def _pooled(panel: Numbers, axis: int, by: int) -> Numbers:
    """The farthest from 0 of every `by` neighbours along an axis; what is not finite counts most."""
    moved = np.moveaxis(panel, axis, 0)
    rest = -len(moved) % by
    moved = np.concatenate([moved, np.zeros((rest, *moved.shape[1:]))])
    grouped = moved.reshape(-1, by, *moved.shape[1:])
    chosen = np.nan_to_num(np.abs(grouped), nan=np.inf).argmax(axis=1)
    return np.moveaxis(np.take_along_axis(grouped, chosen[:, None], axis=1)[:, 0], 0, axis)


def _coloured(values: Numbers, reach: float) -> Numbers:
    """RGB (…, 3) of differences from −reach to reach."""
    low, middle, high = (np.array(end, dtype=np.float64) for end in ENDS)
    share = np.clip(np.nan_to_num(values) / (reach or 1.0), -1.0, 1.0)[..., None]
    mixed = np.where(share < 0, middle + (low - middle) * -share, middle + (high - middle) * share)
    mixed[np.isnan(values)] = BROKEN
    return mixed.round().astype(np.uint8)


def _scale(image: Any, draw: "ImageDraw.ImageDraw", reach: float, above: int, width: int) -> None:
    """The colour bar, from −reach over 0 to reach."""
    from PIL import Image  # noqa: PLC0415

    long = width - 2 * MARGIN
    bar = np.tile(np.linspace(-reach, reach, long), (BAR, 1))
    image.paste(Image.fromarray(_coloured(bar, reach)), (MARGIN, above))
    draw.rectangle((MARGIN - 1, above - 1, MARGIN + long, above + BAR), outline=INK)
    marks: Sequence[tuple[float, str]] = ((0.0, "no difference"),) if not reach else (
        (-1.0, f"{-reach:.2g}"), (-0.5, f"{-reach / 2:.2g}"), (0.0, "0"), (0.5, f"{reach / 2:.2g}"),
        (1.0, f"{reach:.2g}"),
    )  # fmt: skip
    for place, text in marks:
        at = MARGIN + (place + 1) / 2 * (long - 1)
        length = draw.textlength(text)
        draw.line((at, above + BAR, at, above + BAR + 3), fill=INK)
        _line(draw, min(max(at - length / 2, MARGIN), MARGIN + long - length), above + BAR + 4, text)


def _line(draw: "ImageDraw.ImageDraw", left: float, above: float, text: str) -> None:
    draw.text((left, above), text, fill=INK)
