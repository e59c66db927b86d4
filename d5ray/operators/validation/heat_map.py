"""A difference as a picture: the relative difference of two arrays in colours, with a scale in numbers"""

import importlib.util
import io
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from d5ray.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = np.ndarray[Any, Any]
EPSILON: Final = 1e-12  # where both are nothing
MOST_ELEMENTS: Final = 640  # along an axis of the picture; of more, neighbours share a place
MOST_PANELS: Final = 16  # of a 3-D array: slices along its first axis, the worst ones


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


def check_installed() -> None:
    """Raise `ConfigurationError` where matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigurationError(
            "heat maps are drawn by matplotlib, which is not installed: pip install 'd5ray[dashboard]'"
        )


def heat_map(found: Numbers, expected: Numbers, title: str = "") -> bytes:
    """The picture as PNG. Arrays of any number of axes: those before the last two become one.

    One panel for a matrix or a vector; of more axes one for each slice, at most 16, those that differ most.
    Of large arrays each place shows the largest of what falls into it. Blue is less than expected, red more;
    the scale goes as far as the largest difference; black is what is finite on one side alone. Raises
    `ConfigurationError` for arrays that are not alike, and where matplotlib is missing.
    """
    check_installed()
    written = io.BytesIO()
    _drawn(found, expected, title).savefig(written, format="png", dpi=200)
    return written.getvalue()


def _drawn(found: Numbers, expected: Numbers, title: str) -> "Figure":
    from matplotlib import colormaps  # noqa: PLC0415 - only where a picture is asked for
    from matplotlib.figure import Figure  # noqa: PLC0415

    if np.shape(found) != np.shape(expected):
        raise ConfigurationError(
            f"the arrays have the shapes {np.shape(found)} and {np.shape(expected)}: they must be alike"
        )
    difference = relative_difference(found, expected)
    reach = float(np.abs(difference[np.isfinite(difference)]).max(initial=0.0)) or EPSILON
    panels = _panels(difference)
    columns = math.ceil(math.sqrt(len(panels)))
    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    axes = figure.subplots(math.ceil(len(panels) / columns), columns, squeeze=False)
    colours = colormaps["RdBu_r"].with_extremes(bad="black")
    for place in axes.flat:
        place.set_axis_off()
    for place, (name, panel) in zip(axes.flat, panels, strict=False):
        shown = place.imshow(
            _pooled(panel, MOST_ELEMENTS // columns), cmap=colours, vmin=-reach, vmax=reach,
            aspect="auto", interpolation="nearest",
        )  # fmt: skip
        place.set_title(name, fontsize=8)
    what = "relative difference 2 (o − r) / (|o| + |r|)"
    figure.colorbar(shown, ax=axes, orientation="horizontal", label=what, aspect=40)
    figure.suptitle("\n".join(filter(None, (title, _told(difference)))), fontsize=10, parse_math=False)
    return figure


def _told(difference: Numbers) -> str:
    """How much of the picture differs."""
    differing, broken = np.count_nonzero(difference != 0), np.count_nonzero(np.isnan(difference))
    shape = " × ".join(map(str, difference.shape)) or "one number"
    told = f"{shape}: {differing} of {difference.size} elements differ"
    return told + (f", {broken} not finite: black" if broken else "")


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


def _pooled(panel: Numbers, most: int) -> Numbers:
    """The farthest from 0 of neighbours, so many that a panel has at most this many places on an axis."""
    panel = panel if panel.size else np.zeros((1, 1))
    for _ in panel.shape:  # one axis, then the other
        by = math.ceil(len(panel) / most)
        padded = np.concatenate([panel, np.zeros((-len(panel) % by, panel.shape[1]))])
        grouped = padded.reshape(-1, by, panel.shape[1])
        chosen = np.nan_to_num(np.abs(grouped), nan=np.inf).argmax(axis=1)
        panel = np.take_along_axis(grouped, chosen[:, None], axis=1)[:, 0].T
    return panel
