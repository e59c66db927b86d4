"""Sizes in memory as people write them"""

from d5ray.errors import ConfigurationError

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def bytes_of(text: str) -> int:
    """The bytes that a size means.

    >>> bytes_of("256 kB")
    256000
    """
    number, _, unit = str(text).partition(" ")
    if unit not in UNITS or not number.isdigit() or int(number) == 0:
        raise ConfigurationError(
            f"found the size {text!r}: it must be a whole number and a unit, such as '64 kB' or '1 MB'"
        )
    return int(number) * UNITS[unit]
