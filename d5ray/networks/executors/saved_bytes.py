"""Memory of the arrays that are kept for a backward pass"""

from collections.abc import Hashable, Iterable, Set
from typing import Any, NamedTuple


class Region(NamedTuple):
    """The memory of an array: in which allocation of how many bytes, from where on, and how many."""

    allocation: Hashable
    allocated: int
    begin: int
    length: int


def kept_size(regions: Iterable[Region], apart: Set[Hashable] = frozenset()) -> int:
    """The bytes of these arrays, each part of an allocation once; the allocations `apart` do not count.

    A view counts by its own elements, and views of one allocation never for more than that has.
    """
    found: dict[Hashable, tuple[int, set[tuple[int, int]]]] = {}
    for region in regions:
        if region.allocation not in apart:
            _, parts = found.setdefault(region.allocation, (region.allocated, set()))
            parts.add((region.begin, region.length))
    return sum(min(allocated, sum(length for _, length in parts)) for allocated, parts in found.values())


def region_of(array: Any) -> Region:
    """The memory of an array of NumPy or CuPy."""
    owner = array
    while hasattr(base := owner.base, "nbytes") and hasattr(base, "base"):  # not a mapped file, or a tensor
        owner = base
    return Region(id(owner), owner.nbytes, _address(array), array.nbytes)


def _address(array: Any) -> int:
    if hasattr(array, "ctypes"):
        return int(array.ctypes.data)
    return int(getattr(array.data, "ptr", 0))  # 0: one of NumPy's numbers
