"""ArrayLibrary: what the arrays of frameworks do differently, on one device"""

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

HostArray = np.ndarray[Any, Any]
Tensors = Mapping[str, Any]


class Region(NamedTuple):
    """The memory of an array: in which allocation of how many bytes, from where on, and how many."""

    allocation: Hashable
    allocated: int
    begin: int
    length: int


class ArrayLibrary(ABC):
    """The way from arrays in host memory to those of a framework on a device, and back."""

    name: ClassVar[str]
    xp: Any  # the module of its functions
    on_host = True  # the memory is the host's

    @abstractmethod
    def put(self, value: HostArray) -> Any:
        """The array where it is computed with; over the same memory where that is here."""

    def empty(self, shape: tuple[int, ...], kind: "np.dtype[Any]") -> Any:
        """An array of any values, to be overwritten, where it is computed with."""
        return self.put(np.empty(shape, kind))

    @abstractmethod
    def get(self, value: Any) -> HostArray:
        """The array in host memory and a type that NumPy has, in memory of its own."""

    @abstractmethod
    def host(self, value: Any) -> HostArray:
        """A contiguous array in host memory, not to be written; over the same memory where that is here."""

    @abstractmethod
    def allocated(self) -> int | None:
        """The bytes that are allocated now."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for what the device computes; a processor has computed when a call returns."""

    @abstractmethod
    def type_of(self, array: Any) -> str:
        """NumPy's name of the type of an array's elements. Raises `TypeError` for another framework's."""

    @abstractmethod
    def region_of(self, array: Any) -> Region:
        """The memory in which an array lies."""

    def joined(self, arrays: Sequence[Any]) -> Any:
        """A flat copy (n,) of these arrays, one after the other."""
        return self.put(np.concatenate([each.reshape(-1) for each in arrays]))

    def lay(  # noqa: B027 - most libraries have arrays that stay where they are
        self, tensors: Tensors, values: Tensors, gradients: Tensors
    ) -> None:
        """Let tensors, and their gradients, lie where these views of flat arrays do, by their names."""


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


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks",
            "keepcost",
        )
    ]  # fmt: skip


def allocated_bytes() -> int | None:
    """The bytes allocated and not freed, in all arenas and mapped regions; None without glibc 2.33.

    NumPy and PyTorch take the memory of their arrays there, TensorFlow where it has no pool of its own. It
    takes some microseconds.
    """
    function = _mallinfo2()
    if function is None:
        return None
    found = function()
    return int(found.uordblks + found.hblkhd)


@cache
def _mallinfo2() -> "ctypes._NamedFuncPointer | None":
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    function.restype = _Mallinfo2
    function.argtypes = ()
    return function
