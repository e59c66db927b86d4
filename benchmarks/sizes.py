"""Sizes in memory as people write them, and what jobs share whose contenders work on arrays of such sizes"""

from dataclasses import dataclass

from d5ray.checks import check_number
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide

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


@dataclass(frozen=True, kw_only=True)
class AtSizes(SideBySide):
    """A job whose contenders work on arrays.

    sizes     of the arrays, such as "4 kB"; multiples of a float32 value's size
    seconds   about so long every group repeats each size
    """

    sizes: tuple[str, ...]
    seconds: float = 1.0

    def check(self) -> None:
        if not isinstance(self.sizes, tuple) or not self.sizes:
            raise ConfigurationError(f"sizes is {self.sizes!r}: it must be a tuple such as ('4 kB', '1 MB')")
        for size in self.sizes:
            if bytes_of(size) % ITEM_BYTES:
                raise ConfigurationError(
                    f"sizes has {size!r}: it must be a multiple of the {ITEM_BYTES} B of a float32 value"
                )
        check_number("seconds", self.seconds, low=0.0, low_included=False)
