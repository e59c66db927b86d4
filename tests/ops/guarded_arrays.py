"""An array module of NumPy's arithmetic with CuPy's borders, for machines without a GPU

Its arrays do not become NumPy's by themselves, nor mix with them; numbers stay arrays without axes; sums at
places that repeat are there for few types, and other functions at such places are not.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import scipy.special
from numpy.lib.mixins import NDArrayOperatorsMixin

ENTRANCES = ("asarray", "array")  # the functions that take NumPy's arrays
ADDED_AT = ("int32", "uint32", "uint64", "float16", "float32", "float64")  # by `cupy.add.at`


class GuardedArray(NDArrayOperatorsMixin):
    """An array that only functions of `Guarded` take."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def get(self) -> Any:
        """A copy in NumPy, as CuPy calls it."""
        return self.values.copy()

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("an array became NumPy's by itself")

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return wrapped(getattr(function, method))(*inputs, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # `__array_interface__` among them, by which NumPy would help itself
            raise AttributeError(name)
        found = getattr(self.values, name)
        return wrapped(found) if callable(found) else guarded(found)

    def __getitem__(self, index: Any) -> Any:
        return guarded(self.values[inside(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self.values[inside(index)] = inside(value)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __int__(self) -> int:
        return int(self.values)


class Function:
    """A function of NumPy, of guarded arrays."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        return wrapped(self.function)(*inputs, **options)

    def at(self, target: Any, index: Any, values: Any) -> None:
        """Only what CuPy can."""
        if self.function is not np.add or target.dtype.name not in ADDED_AT:
            raise NotImplementedError(f"{self.function}.at of {target.dtype}")
        self.function.at(inside(target), inside(index), inside(values))


class Guarded:
    """The array module; `special` is its part of SciPy."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.__name__ = "cupy"

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.module, name)
        if isinstance(found, ModuleType):
            return Guarded(found)
        if name in ENTRANCES:
            return lambda values, *rest, **options: guarded(found(_bare(values), *rest, **options))
        return Function(found) if callable(found) and not isinstance(found, type) else found


array_module, special = Guarded(np), Guarded(scipy.special)


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*inputs: Any, **options: Any) -> Any:
        return guarded(
            function(*map(inside, inputs), **{name: inside(each) for name, each in options.items()})
        )

    return call


def guarded(found: Any) -> Any:
    """What a function gave, with its arrays and scalars guarded."""
    if isinstance(found, (np.ndarray, np.generic)):
        return GuardedArray(found)
    return type(found)(map(guarded, found)) if isinstance(found, (tuple, list)) else found


def inside(given: Any) -> Any:
    """What a function is given, without guards. Raises `TypeError` for an array of NumPy."""
    if isinstance(given, np.ndarray):
        raise TypeError("an array of NumPy among CuPy's")
    if isinstance(given, (tuple, list)):
        return type(given)(map(inside, given))
    return _bare(given)


def _bare(given: Any) -> Any:
    return given.values if isinstance(given, GuardedArray) else given
