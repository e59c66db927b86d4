"""The special functions that an array module leaves to SciPy"""

import importlib
from functools import cache
from typing import Any

from d5ray.operators.array_operator import Array


def erf(xp: Any, x: Array) -> Array:
    """2/√π ∫₀ˣ exp(−t²) dt."""
    return _functions(xp.__name__).erf(x)


def normal_distribution(xp: Any, x: Array) -> Array:
    """Φ(x) = (1 + erf(x/√2)) / 2, to full relative accuracy for very negative x too."""
    return _functions(xp.__name__).ndtr(x)


@cache
def _functions(array_module: str) -> Any:
    return importlib.import_module("cupyx.scipy.special" if array_module == "cupy" else "scipy.special")
