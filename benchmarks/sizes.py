"""Sizes in memory as people write them"""

from d5ray.errors import ConfigurationError

ITEM_BYTES = 4  # of float32
UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}


def bytes_of(text: str) -> int:
    """The bytes that a size means.

    >>> bytes_of("256 kB")
    256000
    """
    number, _, unit = str(text).partition(" ")
    if unit not in UNITS or not number.isdigit() or int(number) == 0:
        raise ConfigurationError(
            f"found the size {text!r}: it must be an integer and a unit, such as '64 kB' or '1 MB'"
        )
    return int(number) * UNITS[unit]


def elements_of(text: str) -> int:
    """The float32 values that fill a size.

    >>> elements_of("256 kB")
    64000
    """
    return bytes_of(text) // ITEM_BYTES


def check_sizes(sizes: object) -> None:
    """Raise `ConfigurationError` unless these are multiples of the size of a float32 value."""
    if not isinstance(sizes, tuple) or not sizes:
        raise ConfigurationError(f"sizes is {sizes!r}: it must be a tuple such as ('4 kB', '1 MB')")
    for size in sizes:
        if bytes_of(size) % ITEM_BYTES:
            raise ConfigurationError(
                f"sizes has {size!r}: it must be a multiple of the {ITEM_BYTES} B of a float32 value"
            )
