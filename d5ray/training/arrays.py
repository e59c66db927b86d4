"""The few things that NumPy, PyTorch and CuPy arrays do not spell alike."""

from typing import Any


def zeros_like(array: Any) -> Any:
    """A new array of zeros with the same framework, shape, type and device.

    >>> import numpy
    >>> zeros_like(numpy.array([1.0, 2.0]))
    array([0., 0.])
    """
    if hasattr(array, "new_zeros"):  # PyTorch
        return array.new_zeros(array.shape)
    zeros = array.copy()
    zeros[...] = 0
    return zeros


def is_floating(array: Any) -> bool:
    """Whether the array's elements are floating or complex numbers, so that it can be divided in place.

    >>> import numpy
    >>> is_floating(numpy.array([1.0])), is_floating(numpy.array([1]))
    (True, False)
    """
    kind = array.dtype
    if hasattr(kind, "is_floating_point"):  # PyTorch
        return bool(kind.is_floating_point or kind.is_complex)
    return kind.kind in "fc" or kind.name == "bfloat16"  # NumPy knows that type from ml_dtypes alone


def copy_of(array: Any) -> Any:
    """A new array with the same values, framework, type and device.

    >>> import numpy
    >>> x = numpy.array([1.0, 2.0])
    >>> y = copy_of(x)
    >>> x += 1.0
    >>> y
    array([1., 2.])
    """
    copied = zeros_like(array)
    copied[...] = array
    return copied


def like(array: Any, values: Any) -> Any:
    """Values of NumPy (n,) as an array of the same framework, type and device.

    >>> import numpy
    >>> like(numpy.zeros(2, numpy.float32), numpy.array([1.0, 2.0]))
    array([1., 2.], dtype=float32)
    """
    if hasattr(array, "new_tensor"):  # PyTorch
        return array.new_tensor(values)
    converted = zeros_like(array)
    converted[...] = values
    return converted
