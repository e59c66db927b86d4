"""Allocated host memory of this process in bytes, as the C library counts it"""

import ctypes
from functools import cache


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
