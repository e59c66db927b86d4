"""Numbers, sizes and counts as people read them, and the colours of verdicts"""

import math

COLOURS = {"PASS": "bold green", "FAIL": "bold red", "INCONCLUSIVE": "bold yellow"}


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
