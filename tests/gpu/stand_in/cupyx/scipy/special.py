# mypy: ignore-errors
"""`cupyx.scipy.special`: SciPy's functions for arrays of a device"""

import cupy
from scipy import special


def __getattr__(name):
    return cupy._wrapped(getattr(special, name))
