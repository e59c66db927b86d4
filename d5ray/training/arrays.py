"""The few things that NumPy, PyTorch and CuPy arrays do not spell alike."""

import math
import sys
from typing import Any, Final

NO_GRADIENT: Final = -0.0  # what stands for none in a flat gradient: a sum is -0.0 where all summands are


def is_negative_zero(array: Any) -> bool:
    """True if every element is -0.0, as a parameter has it that has no gradient.

    >>> import numpy
    >>> is_negative_zero(numpy.array([-0.0])), is_negative_zero(numpy.array([-0.0, 0.0]))
    (True, False)
    """
    return bool(((array == 0) & library_of(array).signbit(array)).all())


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


def bits(array: Any) -> Any:
    """The bits of an array's numbers as integers, in the same memory; not a number is equal to itself there.

    >>> import numpy
    >>> bits(numpy.array([0.0, -0.0, numpy.nan])).tolist()
    [0, -9223372036854775808, 9221120237041090560]
    """
    kind = f"int{8 * array.itemsize}"
    return array.view(getattr(library_of(array), kind))


def is_floating(array: Any) -> bool:
    """True if the array's elements are floating or complex numbers, so that it can be divided in place.

    >>> import numpy
    >>> is_floating(numpy.array([1.0])), is_floating(numpy.array([1]))
    (True, False)
    """
    kind = array.dtype
    if hasattr(kind, "is_floating_point"):  # PyTorch
        return bool(kind.is_floating_point or kind.is_complex)
    return kind.kind in "fc" or kind.name == "bfloat16"  # NumPy knows that type from ml_dtypes alone


def is_float16(array: Any) -> bool:
    """True if the array's elements are halves with five bits of exponent, whose sums soon are too large."""
    return str(array.dtype).removeprefix("torch.") == "float16"


def widened(array: Any) -> Any:
    """An array's values as float32, in an array of their own."""
    kind = library_of(array).float32
    return array.to(kind) if hasattr(array, "new_zeros") else array.astype(kind)


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
    converted[...] = library_of(array).asarray(values)
    return converted


def fuses(array: Any) -> bool:
    """True if this module's functions go over such an array once, without another array in between.

    >>> import numpy
    >>> fuses(numpy.zeros(1))
    False
    """
    return hasattr(array, "addcmul_")  # PyTorch


def add_scaled(x: Any, scale: float, a: Any) -> None:
    """x ← x + scale · a, in place; PyTorch does it in one pass.

    >>> import numpy
    >>> x = numpy.array([1.0, 2.0])
    >>> add_scaled(x, -0.5, numpy.array([2.0, 2.0]))
    >>> x
    array([0., 1.])
    """
    if fuses(x):
        x.add_(a, alpha=scale)
    else:
        x += scale * a


def add_scaled_product(x: Any, scale: float, a: Any, b: Any) -> None:
    """x ← x + scale · a b, in place; PyTorch does it in one pass."""
    if fuses(x):
        x.addcmul_(a, b, value=scale)
    else:
        x += scale * a * b


def add_scaled_quotient(x: Any, scale: float, a: Any, b: Any) -> None:
    """x ← x + scale · a / b, in place; PyTorch does it in one pass."""
    if fuses(x):
        x.addcdiv_(a, b, value=scale)
    else:
        x += scale * a / b


def scale_and_add(x: Any, scale: float, a: Any) -> None:
    """x ← scale · x + a, in place; PyTorch does it in one pass.

    >>> import numpy
    >>> x = numpy.array([1.0, 2.0])
    >>> scale_and_add(x, 0.5, numpy.array([2.0, 2.0]))
    >>> x
    array([2.5, 3. ])
    """
    if fuses(x):
        library_of(x).add(a, x, alpha=scale, out=x)
    else:
        x *= scale
        x += a


def blend(x: Any, share: float, a: Any) -> None:
    """x ← (1 − share) x + share · a, in place; PyTorch does it in one pass.

    >>> import numpy
    >>> x = numpy.array([1.0, 2.0])
    >>> blend(x, 0.25, numpy.array([5.0, 2.0]))
    >>> x
    array([2., 2.])
    """
    if fuses(x):
        x.lerp_(a, share)
    else:
        x *= 1 - share
        x += share * a


def library_of(array: Any) -> Any:
    """The module that the array is of: numpy, torch or cupy, which is imported if it has arrays."""
    return sys.modules[type(array).__module__.partition(".")[0]]


def in_host_memory(array: Any) -> bool:
    """True if the array lies in memory of the CPU.

    >>> import numpy
    >>> in_host_memory(numpy.zeros(1))
    True
    """
    if hasattr(array, "new_zeros"):  # PyTorch
        return bool(array.device.type == "cpu")
    return type(array).__module__.partition(".")[0] == "numpy"


def wait_for(array: Any) -> None:
    """Return when its device has computed an array; at once for one in host memory.

    >>> import numpy
    >>> wait_for(numpy.zeros(1))
    """
    if not in_host_memory(array):
        cuda, device = library_of(array).cuda, array.device
        if hasattr(cuda, "current_stream"):
            cuda.current_stream(device).synchronize()
        else:
            with device:
                cuda.get_current_stream().synchronize()


def use_device_of(array: Any) -> None:
    """Make an array's device the current one of this thread, by which CuPy goes; PyTorch goes by tensors.

    >>> import numpy
    >>> use_device_of(numpy.zeros(1))
    """
    use = getattr(getattr(array, "device", None), "use", None)
    if use is not None:
        use()


def identity(length: int, array: Any) -> Any:
    """The identity matrix (length, length) of the same framework, type and device as the array.

    >>> import numpy
    >>> identity(2, numpy.zeros(3))
    array([[1., 0.],
           [0., 1.]])
    """
    if hasattr(array, "new_zeros"):  # PyTorch
        return array.new_zeros((length, length)).fill_diagonal_(1)
    return library_of(array).eye(length, dtype=array.dtype)


def sqrt(array: Any) -> Any:
    """The root of every element, as a new array."""
    return library_of(array).sqrt(array)


def sign(array: Any) -> Any:
    """−1, 0 or 1 for every element, as a new array."""
    return library_of(array).sign(array)


def raise_to(x: Any, a: Any) -> None:
    """x ← max(x, a), in place.

    >>> import numpy
    >>> x = numpy.array([1.0, 2.0])
    >>> raise_to(x, numpy.array([3.0, 0.0]))
    >>> x
    array([3., 2.])
    """
    library_of(x).maximum(x, a, out=x)


def dot(one: Any, other: Any) -> float:
    """Σ a b over all elements of two arrays of the same shape.

    >>> import numpy
    >>> dot(numpy.array([1.0, 2.0]), numpy.array([3.0, 4.0]))
    11.0
    """
    if fuses(one):
        return float(one.reshape(-1).dot(other.reshape(-1)))
    return float((one * other).sum())


def norm(array: Any) -> float:
    """‖a‖₂ over all elements.

    >>> import numpy
    >>> norm(numpy.array([[3.0], [4.0]]))
    5.0
    """
    return math.sqrt(dot(array, array))


def clipped(array: Any, limit: float) -> Any:
    """Every element, brought into [−limit, limit], as a new array.

    >>> import numpy
    >>> clipped(numpy.array([-2.0, 0.5]), 1.0)
    array([-1. ,  0.5])
    """
    return array.clip(-limit, limit)


def is_finite(array: Any) -> bool:
    """True if no element is NaN or infinite.

    >>> import numpy
    >>> is_finite(numpy.array([1.0, numpy.inf]))
    False
    """
    return bool(library_of(array).isfinite(array).all())
