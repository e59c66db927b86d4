"""Numbers, sizes and counts as people read them, a value and its interval in one unit; colours of verdicts"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, final

import numpy as np
import numpy.typing as npt

from d5ray.metrics.statistics.intervals import Estimate

Floats = npt.NDArray[np.float64]
COLOURS = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}
SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


@final
class Unit(NamedTuple):
    """The divisor of a value, and the unit in which it is then."""

    scale: float
    name: str

    def text(self, value: float | None) -> str:
        """The value in this unit as text, without the unit's name; – where there is none."""
        return "–" if value is None else number(value / self.scale).replace("inf", "> budget")

    def interval(self, low: float | None, high: float | None) -> str:
        """`[1.2, 1.4]`; empty where one bound is not known."""
        return "" if low is None or high is None else f"[{self.text(low)}, {self.text(high)}]"

    @property
    def axis(self) -> str:
        """The unit as an axis has it, after the name of what it shows."""
        return f" ({self.name})" if self.name else ""


PLAIN: Final = Unit(1.0, "")  # a value as it is


def unit_of(name: str, values: Iterable[float | None]) -> Unit:
    """The unit in which these values are read best: times and bytes by their size, others as they are.

    >>> unit_of("s", [0.0021, None]), unit_of("B", [3.2e7]), unit_of("1", [0.97])
    (Unit(scale=0.001, name='ms'), Unit(scale=1000000.0, name='MB'), Unit(scale=1.0, name=''))
    """
    steps = {"s": SECONDS, "B": BYTES}.get(name)
    if steps is None:
        return Unit(1.0, {"1": "", "1/s": "/s"}.get(name, name))
    sizes = [abs(value) for value in values if value and math.isfinite(value)]
    typical = sorted(sizes)[len(sizes) // 2] if sizes else 1.0
    return Unit(*next((step for step in steps if typical >= step[0]), steps[-1]))


def told(found: Estimate, name: str) -> str:
    """`1.51 ms [1.47, 1.66]`; a dash where there is nothing.

    >>> told(Estimate(0.00151, 0.00147, 0.00166, 20, "blocks"), "s")
    '1.51 ms [1.47, 1.66]'
    """
    if found.value is None:
        return "–"
    unit = unit_of(name, [found.value])
    parts = (unit.text(found.value), unit.name, unit.interval(found.low, found.high))
    return " ".join(part for part in parts if part)


def spread(found: Sequence[Estimate], scale: float = 1.0) -> tuple[Floats, Floats]:
    """Values, and how far their intervals go below and above them (2, values), as error bars have it.

    Where there is no value it is NaN, and where there is no interval its ends are the value.
    """
    values = [math.nan if each.value is None else each.value for each in found]
    low = [value if each.low is None else each.low for each, value in zip(found, values, strict=True)]
    high = [value if each.high is None else each.high for each, value in zip(found, values, strict=True)]
    middle, ends = np.array(values) / scale, np.array([low, high]) / scale
    return middle, np.stack([middle - ends[0], ends[1] - middle])


def number(value: float) -> str:
    """A number with as many digits as a reader wants.

    >>> number(0.0026108), number(20094.53), number(0.97), number(12.0)
    ('0.00261', '20,095', '0.97', '12')
    """
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 0.01 else f"{value:.3g}"


def size(count_of_bytes: float) -> str:
    """Bytes in the nearest unit.

    >>> size(39350240)
    '39.4 MB'
    """
    units = ("B", "kB", "MB", "GB", "TB")
    power = min(int(math.log10(max(count_of_bytes, 1)) // 3), len(units) - 1)
    return f"{count_of_bytes / 1000**power:.3g} {units[power]}"


def count(amount: int, noun: str, plural: str = "") -> str:
    """The amount with its noun in the right number.

    >>> count(1, "agent"), count(2, "agent"), count(3, "criterion", "criteria")
    ('1 agent', '2 agents', '3 criteria')
    """
    return f"{amount} {noun if amount == 1 else plural or noun + 's'}"
