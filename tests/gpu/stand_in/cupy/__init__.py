# mypy: ignore-errors
"""A strict stand-in for CuPy 14 on NumPy, for machines without a GPU: it refuses what CuPy refuses

Arrays lie on a device; none becomes an array of NumPy unasked, none takes one as an operand, an index or a
value, and an operation on another than the current device is refused. What is computed is done at once; what
NCCL moves is done by its stream. `python -m tests.gpu FILE...` puts it in the way of programs.
"""

import weakref
from types import ModuleType

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from cupy import cuda
from cupy import random as random

__version__ = "14.2.0"
STAND_IN = True
_held = {}  # by the id of an array of NumPy, its address, its bytes, and its device
METHODS = (
    "all any argmax argmin argsort astype clip conj cumsum dot flatten max mean min nonzero prod repeat "
    "round sort std sum take trace var"
)
ADDED_AT = "int32 uint32 uint64 float16 float32 float64"  # by `add.at`; there are no others
VIEWS = "diagonal ravel reshape squeeze swapaxes transpose view"  # for which no kernel runs


class ndarray(NDArrayOperatorsMixin):
    """An array of NumPy that plays to lie on a device."""

    __array_priority__ = 100

    def __init__(self, values, device=None):
        self._values = np.asarray(values)
        self._device = cuda.Device() if device is None else device
        _count(self._values, self._device.id)

    # -- what CuPy refuses -----------------------------------------------------------------------------

    def __array__(self, *arguments, **named):
        raise TypeError(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy "
            "array explicitly."
        )

    def __setitem__(self, index, value):
        if isinstance(value, np.ndarray) and value.shape != ():
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        _values_of(self)[_values_of(index)] = _values_of(value)

    # -- what it has -----------------------------------------------------------------------------------

    def __array_ufunc__(self, function, method, *inputs, out=(), **named):
        targets = out if isinstance(out, tuple) else (out,)
        given = {"out": tuple(map(_values_of, targets))} if targets else {}
        found = getattr(function, method)(
            *map(_values_of, inputs), **given, **{key: _values_of(value) for key, value in named.items()}
        )
        return targets[0] if targets else _on_device(found)

    def __array_function__(self, function, types, arguments, named):
        return _called(function)(*arguments, **named)

    def __getitem__(self, index):
        return ndarray(self._values[_values_of(index)], self._device)

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return (self[place] for place in range(len(self)))

    def __bool__(self):
        return bool(self._values)

    def __int__(self):
        return int(self._values)

    def __float__(self):
        return float(self._values)

    def __index__(self):
        return self._values.__index__()

    def __repr__(self):
        return repr(self._values)

    def get(self):
        return self._values.copy()

    def set(self, values):
        self._values[...] = values

    def fill(self, value):
        _values_of(self).fill(value)

    def copy(self, order="C"):
        return ndarray(self._values.copy(order))  # on the current device, as CuPy's

    def item(self, *arguments):
        return self._values.item(*arguments)

    def tolist(self):
        return self._values.tolist()

    @property
    def device(self):
        return self._device

    @property
    def data(self):
        return _Memory(self._values.ctypes.data, self._device.id)

    @property
    def base(self):
        return ndarray(self._values.base, self._device) if isinstance(self._values.base, np.ndarray) else None

    @property
    def flags(self):
        return self._values.flags

    def __dlpack__(self, **named):
        """To a PyTorch that computes on the processor, as everything does here."""
        return self._values.__dlpack__()

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self.data.ptr, False), "version": 3
        }  # fmt: skip


class _Memory:
    def __init__(self, ptr, device_id):
        self.ptr, self.device_id = ptr, device_id


def _same(name):
    return property(lambda array: getattr(array._values, name))


def _alike(name):
    return property(lambda array: ndarray(getattr(array._values, name), array._device))


def _method(name):
    def call(array, *arguments, **named):
        return _called(getattr(_values_of(array), name))(*arguments, **named)

    return call


def _view(name):
    return lambda array, *arguments, **named: ndarray(
        getattr(array._values, name)(*arguments, **named), array._device
    )


for _name in ["shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides"]:
    setattr(ndarray, _name, _same(_name))
for _name in ["T", "real", "imag"]:
    setattr(ndarray, _name, _alike(_name))
for _name in METHODS.split():
    setattr(ndarray, _name, _method(_name))
for _name in VIEWS.split():
    setattr(ndarray, _name, _view(_name))
ndarray.__module__ = "cupy"


def _values_of(given):
    """What NumPy computes with; an array of NumPy itself, or one of another device, is refused."""
    if isinstance(given, ndarray):
        if given._device.id != cuda.Device().id:
            raise ValueError(
                "Array device must be same as the current device: array device = "
                f"{given._device.id} while current = {cuda.Device().id}"
            )
        return given._values
    if isinstance(given, np.ndarray):
        raise TypeError(f"Unsupported type {type(given)}")
    if isinstance(given, (tuple, list)):
        return type(given)(map(_values_of, given))
    return given


def _on_device(found):
    if isinstance(found, (np.ndarray, np.generic)):
        return ndarray(found)
    if hasattr(found, "_fields"):  # what linear algebra gives
        return type(found)(*map(_on_device, found))
    if isinstance(found, (tuple, list)):
        return type(found)(map(_on_device, found))
    return found


def _called(function):
    """A function of NumPy, for arrays of a device."""

    def call(*arguments, **named):
        found = function(
            *map(_values_of, arguments), **{key: _values_of(value) for key, value in named.items()}
        )
        return named["out"] if isinstance(named.get("out"), ndarray) else _on_device(found)

    return call


class _Ufunc:
    """A ufunc, with its methods."""

    def __init__(self, function):
        self._function, self.__name__ = function, function.__name__

    def __call__(self, *arguments, **named):
        return _called(self._function)(*arguments, **named)

    def at(self, target, index, values):
        if self._function is not np.add or target.dtype.name not in ADDED_AT.split():
            raise NotImplementedError(f"{self.__name__}.at of {target.dtype}")
        self._function.at(_values_of(target), _values_of(index), _values_of(values))

    def __getattr__(self, name):
        return _called(getattr(self._function, name))


def array(values, *arguments, **named):
    """A copy on the current device, also of what the host has."""
    return ndarray(np.array(values.get() if isinstance(values, ndarray) else values, *arguments, **named))


def asarray(values, dtype=None, **named):
    if isinstance(values, ndarray) and (dtype is None or values.dtype == dtype):
        return values
    return array(values, dtype)


def asnumpy(values):
    return values.get() if isinstance(values, ndarray) else np.asarray(values)


def get_default_memory_pool():
    return _Pool()


class _Pool:
    def used_bytes(self):
        return sum(held[1] for held in _held.values())


def device_at(pointer):
    """The number of the device on which an address lies; None where none of these arrays has it."""
    return next((of for begin, size, of in list(_held.values()) if begin <= pointer < begin + size), None)


def _count(values, device):
    """Count the memory of an array until nothing needs it."""
    while isinstance(values.base, np.ndarray):
        values = values.base
    if id(values) not in _held:
        _held[id(values)] = values.ctypes.data, values.nbytes, device
        weakref.finalize(values, _held.pop, id(values), None)


class _Module:
    """A module of functions, such as `linalg` and `lib.stride_tricks`."""

    def __init__(self, module):
        self._module = module

    def __getattr__(self, name):
        return _wrapped(getattr(self._module, name))


def _wrapped(found):
    if isinstance(found, ModuleType):
        return _Module(found)
    if isinstance(found, np.ufunc):
        return _Ufunc(found)
    return found if isinstance(found, type) or not callable(found) else _called(found)


def __getattr__(name):
    return _wrapped(getattr(np, name))
