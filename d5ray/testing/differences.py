"""The differences between what agents train and what a framework trains alone"""

from typing import Any, final

import numpy as np

from d5ray.errors import ValidationError

Arrays = dict[str, np.ndarray[Any, Any]]


@final
class Differences:
    """The differences that were met, none of them above the tolerance.

    framework: its name, for people. largest: of the differences, relative to a tensor's largest element.
    """

    def __init__(self, framework: str, tolerance: float) -> None:
        self.framework, self.tolerance, self.largest = framework, tolerance, 0.0

    def check(self, whose: str, found: Arrays, expected: Arrays) -> None:
        """Raise `ValidationError` for the tensor that differs most, if one does."""
        if found.keys() != expected.keys():
            raise ValidationError(
                f"{whose} has the tensors {sorted(found)}, {self.framework} has {sorted(expected)}"
            )
        apart = {name: _apart(found[name], value) for name, value in expected.items()}
        worst = max(apart, key=lambda name: apart[name])
        self.largest = max(self.largest, apart[worst])
        if not self.largest <= self.tolerance:
            raise ValidationError(
                f"{worst!r} of {whose} is not {self.framework}'s: apart by {apart[worst]:.3g} of its largest "
                f"element, and {self.tolerance:g} is allowed"
            )


def _apart(found: Any, expected: Any) -> float:
    wide = np.complex128 if np.iscomplexobj(expected) else np.float64
    own, other = (np.asarray(each, wide) for each in (found, expected))
    if own.shape != other.shape or not np.array_equal(np.isfinite(own), np.isfinite(other)):
        return float("inf")
    difference = np.abs(np.nan_to_num(own) - np.nan_to_num(other)).max(initial=0.0)
    return float(difference / max(1.0, np.abs(np.nan_to_num(other)).max(initial=0.0)))
