"""Style of figures: colours that the colour-blind tell apart, other marks and dashes besides, text as text"""

import importlib.util
import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, final

from d5ray.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#4d4d4d")  # Okabe, Ito
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
DASHES: Final = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (8, 3)), (0, (3, 1, 1, 1)), "-")
HATCHES: Final = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
INK, FAINT, GRID, PAPER = "#1a202c", "#52606d", "#d9dee4", "#ffffff"  # a page may replace them by its own
GOOD, BAD, OPEN = "#009e73", "#d55e00", "#e69f00"
RAISED: Final = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
WIDTH: Final = 4.9  # inches; a column of a page
POINTS_PER_INCH = 220  # of a PNG


@final
class LineStyle(NamedTuple):
    """The style that tells a line from others."""

    colour: str
    marker: str
    dashes: Any


def line_style(index: int) -> LineStyle:
    """The styles in turn; no two of the first 49 are alike."""
    turn = index // len(COLOURS)
    at = index % len(COLOURS)
    return LineStyle(COLOURS[at], MARKERS[(at + turn) % len(MARKERS)], DASHES[(at + turn) % len(DASHES)])


def check_installed() -> None:
    """Raise `ConfigurationError` where matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigurationError(
            "figures are drawn by matplotlib, which is not installed: pip install 'd5ray[dashboard]'"
        )


@contextmanager
def _styled() -> Iterator[None]:
    import matplotlib as mpl  # noqa: PLC0415 - loaded when something is drawn

    rules: dict[Any, Any] = {
        "font.size": 10, "font.family": "sans-serif", "axes.titlesize": 10.5, "axes.titleweight": "bold",
        "axes.titlelocation": "left", "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT,
        "xtick.color": INK, "ytick.color": INK, "axes.grid": True, "grid.color": GRID, "grid.linewidth": 0.7,
        "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "lines.linewidth": 1.7,
        "lines.markersize": 4.5, "legend.frameon": False, "legend.fontsize": 9, "figure.facecolor": PAPER,
        "axes.facecolor": PAPER, "savefig.facecolor": PAPER, "hatch.linewidth": 0.6, "errorbar.capsize": 3,
        "svg.fonttype": "none", "svg.hashsalt": "d5ray",  # text as text; the same figure, the same file
        "text.parse_math": False, "text.usetex": False,  # a run's texts are no formulas
    }  # fmt: skip
    with mpl.rc_context(rules), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # the reader's has it
        warnings.filterwarnings("ignore", message=".*[Tt]ight.*layout.*")
        yield


@contextmanager
def drawing(height: float, **layout: Any) -> "Iterator[tuple[Figure, Any]]":
    """A figure of this height in inches and its axes, in this style; layout: see `Figure.subplots`."""
    check_installed()
    with _styled():
        from matplotlib.figure import Figure  # noqa: PLC0415

        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        yield figure, figure.subplots(**layout)


def svg(figure: "Figure") -> str:
    """The figure as SVG; the same figure gives the same text."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with _styled():
        figure.savefig(buffer, format="svg", metadata=nothing)
    return buffer.getvalue()


def png(figure: "Figure") -> bytes:
    """The figure as PNG."""
    buffer = io.BytesIO()
    with _styled():
        figure.savefig(buffer, format="png", dpi=POINTS_PER_INCH, metadata={"Software": None})
    return buffer.getvalue()


def logarithmic(axes: "Axes", which: Literal["x", "y"], low: float, high: float) -> None:
    """A logarithmic axis with its numbers written out: of few decades 1, 2 and 5, of many 1 alone.

    low, high: what it shows, both above 0.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415

    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set_xscale("log") if which == "x" else axes.set_yscale("log")
    decades = math.log10(high / low)
    subs = (1.0, 2.0, 5.0) if decades < 1.3 else (1.0, 3.0) if decades < 2.3 else (1.0,)
    axis.set_major_locator(LogLocator(10, subs=subs, numticks=8 if len(subs) == 1 else 20))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))


def plain_number(value: float) -> str:
    """A tick of a logarithmic axis.

    >>> plain_number(0.05), plain_number(2000), plain_number(1e-5), plain_number(2e7)
    ('0.05', '2,000', '10⁻⁵', '2·10⁷')
    """
    if 1e-3 <= value < 1e5:
        return f"{value:,.6g}"
    power = math.floor(math.log10(value) + 1e-9)
    factor = f"{value / 10.0**power:.3g}"
    return ("" if factor == "1" else f"{factor}·") + "10" + str(power).translate(RAISED)


def legend_height(names: Sequence[str]) -> float:
    """The inches that a legend of these names takes below the axes."""
    return 0.2 * math.ceil(len(names) / _columns(names)) if _is_below(names) else 0.0


def legend(figure: "Figure", axes: "Axes", names: Sequence[str]) -> None:
    """Draw a legend: within the axes if names are few and short, else below them; none for one line."""
    if _is_below(names):
        figure.legend(loc="outside lower center", ncols=_columns(names))
    elif len(names) > 1:
        axes.legend(loc="best")


def _is_below(names: Sequence[str]) -> bool:
    return len(names) > 1 and (max(map(len, names)) > 22 or len(names) > 4)


def _columns(names: Sequence[str]) -> int:
    return 1 if max(map(len, names)) > 28 else 2


def plain(text: object) -> str:
    """A text as a picture can hold it: what XML forbids is shown as a replacement character.

    >>> plain("a\\x00b")
    'a\ufffdb'
    """
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))


def short(text: str, most: int = 48) -> str:
    """A text cut in the middle, where names that belong together are most alike.

    >>> short("abcdefghij", 7)
    'abc…hij'
    """
    text = plain(text)
    if len(text) <= most:
        return text
    half = (most - 1) // 2
    return f"{text[: most - 1 - half]}…{text[len(text) - half :]}"
