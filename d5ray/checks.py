"""What numbers a user may give: checks that say what was found and what is expected"""

import math
import sys

from d5ray.errors import ConfigurationError


def check_count(name: str, value: object, low: int = 1) -> None:
    """Raise `ConfigurationError` unless value is a whole number of at least `low`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigurationError(f"{name} is {value!r}: it must be a whole number of at least {low}")


def check_number(name: str, value: object, *, low: float, low_included: bool, high: float = math.inf) -> None:
    """Raise `ConfigurationError` unless value is a finite number between low and high (high excluded).

    >>> check_number("momentum", 1.5, low=0.0, low_included=True, high=1.0)
    Traceback (most recent call last):
    d5ray.errors.ConfigurationError: momentum is 1.5: it must be a number from 0 up to, but not, 1
    """
    number = (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) <= sys.float_info.max  # false for nan too; math.isfinite overflows on a huge integer
    )
    if number and (value > low or (low_included and value == low)) and value < high:  # type: ignore[operator]
        return
    bounds = f"from {low:g} up" if low_included else f"greater than {low:g}"
    if high != math.inf:
        bounds += f" to, but not, {high:g}" if low_included else f" and smaller than {high:g}"
    raise ConfigurationError(f"{name} is {value!r}: it must be a number {bounds}")


def check_rate(name: str, value: object, *, zero: bool = False) -> None:
    """Raise `ConfigurationError` unless value is a finite positive number, or zero where that is meant."""
    check_number(name, value, low=0.0, low_included=zero)


def check_share(name: str, value: object) -> None:
    """Raise `ConfigurationError` unless value is a number from 0 up to, but not, 1."""
    check_number(name, value, low=0.0, low_included=True, high=1.0)
