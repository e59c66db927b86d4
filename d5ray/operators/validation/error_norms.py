"""Error norms: how far an array is from another, absolutely and relatively, and where the largest error is"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from d5ray.errors import ValidationError

Numbers = np.ndarray[Any, Any]
# Relative errors that sums of some thousand terms in another order may have, with room to spare.
TOLERANCES: Final = {2: 2e-2, 4: 1e-4, 8: 1e-10}  # by the bytes of an element; bfloat16 apart
BFLOAT16: Final = 1e-1


@final
@dataclass(frozen=True)
class ErrorNorms:
    """Norms of found − expected over all elements: L1 (sum), L2 (root of the sum of squares), the largest.

    The relative ones are over the same norm of what is expected. at: the element with the largest difference,
    where `found` and `expected` stand. unequal: how many elements are not finite, or not equal in a type that
    is exact, on one side alone.
    """

    name: str
    shape: tuple[int, ...]
    l1: float
    l2: float
    largest: float
    relative_l1: float
    relative_l2: float
    relative_largest: float
    at: tuple[int, ...]
    found: float
    expected: float
    unequal: int
    tolerance: float

    @property
    def passed(self) -> bool:
        """True if nothing is unequal, and the relative L2 and largest errors are within tolerance."""
        return not self.unequal and max(self.relative_l2, self.relative_largest) <= self.tolerance

    def __str__(self) -> str:
        verdict = "as expected" if self.passed else "differs"
        lines = (
            f"{self.name} {self.shape}: {verdict}, to a relative {self.tolerance:g}; L1 {self.l1:.3g} "
            f"(relative {self.relative_l1:.2g}), L2 {self.l2:.3g} ({self.relative_l2:.2g}), largest "
            f"{self.largest:.3g} ({self.relative_largest:.2g})"
        )
        if self.largest or self.unequal:
            lines += f" at {self.at}: {self.found:.9g} instead of {self.expected:.9g}"
        return lines + (f"; {self.unequal} elements are unequal" if self.unequal else "")


def error_norms(name: str, found: Numbers, expected: Numbers, tolerance: float | None = None) -> ErrorNorms:
    """The error norms of two arrays of one shape and kind; `ValidationError` if they are not.

    tolerance: by default that of the coarser of both types, see `TOLERANCES`; exact types must be equal.

    >>> norms = error_norms("y", np.array([3.0, 4.5]), np.array([3.0, 4.0]))
    >>> norms.l1, norms.relative_l2, norms.at, norms.passed
    (0.5, 0.1, (1,), False)
    """
    if found.shape != expected.shape:
        raise ValidationError(f"{name} has the shape {found.shape}, expected is {expected.shape}")
    exact = [not inexact(array) for array in (found, expected)]
    if any(exact) and not all(exact):
        raise ValidationError(f"{name} is of type {found.dtype}, expected is {expected.dtype}")
    if tolerance is None:
        tolerance = 0.0 if all(exact) else max(map(tolerance_of, (found.dtype, expected.dtype)))
    kind = np.complex128 if "c" in (found.dtype.kind, expected.dtype.kind) else np.float64
    o, r = found.astype(kind), expected.astype(kind)
    unequal = o != r if all(exact) else _one_sided(o, r)
    usable = np.isfinite(o) & np.isfinite(r)
    apart = np.where(usable, np.abs(np.subtract(o, r, where=usable, out=np.zeros_like(o))), 0.0)
    size = np.where(usable, np.abs(r), 0.0)
    worst = np.where(unequal, np.inf, apart)
    at = np.unravel_index(int(np.argmax(worst)), o.shape) if o.size else ()
    return ErrorNorms(
        name=name,
        shape=o.shape,
        l1=_norm(np.sum, apart),
        l2=_l2(apart),
        largest=_norm(np.max, apart),
        relative_l1=_over(_norm(np.sum, apart), _norm(np.sum, size)),
        relative_l2=_over(_l2(apart), _l2(size)),
        relative_largest=_over(_norm(np.max, apart), _norm(np.max, size)),
        at=tuple(map(int, at)),
        found=float(np.real(o[at])) if o.size else math.nan,
        expected=float(np.real(r[at])) if o.size else math.nan,
        unequal=int(np.count_nonzero(unequal)),
        tolerance=tolerance,
    )


def tolerance_of(dtype: "np.dtype[Any]") -> float:
    """The relative error that a type may have by default.

    >>> tolerance_of(np.dtype("float32"))
    0.0001
    """
    if dtype.name == "bfloat16":
        return BFLOAT16
    return TOLERANCES.get(dtype.itemsize // (2 if dtype.kind == "c" else 1), TOLERANCES[8])


def _one_sided(o: Numbers, r: Numbers) -> Numbers:
    """The places where one is not finite and the other is not the same."""
    same: Numbers = (o == r) | (np.isnan(o) & np.isnan(r)) | (np.isfinite(o) & np.isfinite(r))
    return ~same


def inexact(array: Numbers) -> bool:
    """True if the type is one of floating-point numbers; NumPy does not count bfloat16 among them."""
    return array.dtype.kind in "fc" or array.dtype.name == "bfloat16"


def _norm(of: Callable[..., Any], values: Numbers) -> float:
    return float(of(values)) if values.size else 0.0


def _l2(values: Numbers) -> float:
    return float(np.linalg.norm(values.ravel()))


def _over(error: float, size: float) -> float:
    return error / size if size else (0.0 if error == 0 else math.inf)
