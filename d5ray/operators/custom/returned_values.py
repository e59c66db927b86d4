"""Checks of what an operator of one's own returns: number, kind, type and shape, and whose memory it is"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from d5ray.errors import D5Error, OperatorError, first_line
from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.tensors.descriptor_fit import fits
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

ALONE: Final = 2  # references to what one list or array holds: that one, and the argument of `getrefcount`


def told(operator: str, method: str, function: Callable[..., Any], *given: Any) -> Any:
    """The result of a method of the user's; `OperatorError`, naming the operator, says what it raises."""
    try:
        return function(*given)
    except D5Error:
        raise
    except Exception as error:
        readable = "read-only" in str(error) or "WRITEABLE" in str(error)
        raise OperatorError(
            f"{method} of the operator {operator} failed ({type(error).__name__}: {first_line(error)})"
            + (": inputs can only be read, change a copy" if readable else "")
        ) from error


def returned_by(operator: str, method: str, function: Callable[..., Any], *given: Any) -> list[Any]:
    """The arrays that a method of the user's returns, as a list, in memory that nobody else has.

    An array that the operator keeps, or has been given, is copied, and so is a view of one: its next call, or
    whoever holds the result, would change the other. Raises `OperatorError` as `told` does.
    """
    returned = told(operator, method, function, *given)
    listed = list(returned) if isinstance(returned, (list, tuple)) else [returned]
    del returned, given  # which hold the arrays, too
    for at in range(len(listed)):
        if hasattr(listed[at], "base") and not _alone(listed, at):
            listed[at] = listed[at].copy()
    return listed


def _alone(listed: list[Any], at: int) -> bool:
    """True if the list alone holds the array, and that alone its memory; a variable would be one more."""
    if sys.getrefcount(listed[at]) > ALONE:
        return False
    if listed[at].base is None:
        return True
    return (
        type(listed[at].base) is type(listed[at])
        and listed[at].base.base is None
        and sys.getrefcount(listed[at].base) <= ALONE
    )


def described(array: Array) -> TensorDescriptor:
    """The descriptor of an array."""
    return TensorDescriptor(array.dtype, array.shape)


def is_real(dtype: Any) -> bool:
    """True if the type is one of floating-point numbers, which have gradients."""
    return bool(dtype.kind == "f") or (dtype.kind == "V" and str(dtype) == "bfloat16")


def dense(array: Array) -> Array:
    """A NumPy array itself where its elements lie in C order, else a copy."""
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else array.copy(order="C")


def checked_outputs(
    operator: str, xp: Any, listed: Sequence[object], expected: Sequence[TensorDescriptor] | None
) -> Arrays:
    """The outputs that `forward` returned, as arrays of `xp`. Raises `OperatorError` for unexpected ones."""
    if expected is not None and len(listed) != len(expected):
        raise OperatorError(
            f"forward of the operator {operator} gave {_number(listed, 'output')}, expected {len(expected)}: "
            "return one array, or a tuple with one for each output"
        )
    arrays = tuple(
        [
            each if isinstance(each, xp.ndarray) else _array(xp, each, f"output {index} of {operator}")
            for index, each in enumerate(listed)
        ]
    )
    if expected is None:
        return arrays
    for index, (array, wanted) in enumerate(zip(arrays, expected, strict=True)):
        if not fits(wanted, array):
            raise OperatorError(
                f"output {index} of the operator {operator} is {described(array)}, expected {wanted}: "
                f"{_advice(wanted.dtype, array)}"
            )
    return arrays


def checked_gradients(
    operator: str, xp: Any, listed: Sequence[object], inputs: Sequence[Array | None]
) -> Gradients:
    """The gradients that `backward` returned, as arrays of `xp`, None for inputs that have none.

    Raises `OperatorError` where there is not one for each input, of its type and shape. What is returned
    for an input that is no floating-point number is dropped.
    """
    if len(listed) != len(inputs):
        raise OperatorError(
            f"backward of the operator {operator} gave {_number(listed, 'gradient')}, expected "
            f"{len(inputs)}: return one for each input, None for an input that has none"
        )
    gradients: list[Array | None] = []
    for index, (each, given) in enumerate(zip(listed, inputs, strict=True)):
        if each is None or given is None or not is_real(given.dtype):
            gradients.append(None)
            continue
        gradient = (
            each
            if isinstance(each, xp.ndarray)
            else _array(xp, each, f"the gradient for input {index} of {operator}")
        )
        if gradient.dtype != given.dtype or gradient.shape != given.shape:
            raise OperatorError(
                f"backward of the operator {operator} gave {described(gradient)} for input {index}, which is "
                f"{described(given)}: {_advice(given.dtype, gradient)}"
            )
        gradients.append(gradient)
    return tuple(gradients)


def _array(xp: Any, value: object, what: str) -> Array:
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():  # a scalar of NumPy, as sums are
        return xp.asarray(value)
    raise OperatorError(
        f"{what} is {_kind(value)}, expected an array of {xp.__name__}: return "
        f"{xp.__name__}.asarray(value, dtype=...)"
    )


def _advice(dtype: Any, array: Array) -> str:
    if dtype != array.dtype:
        return f"cast it with .astype({str(dtype)!r})"
    return "return an array of that shape"


def _kind(value: object) -> str:
    if value is None:
        return "None"
    module = type(value).__module__.partition(".")[0]
    return f"of the type {type(value).__name__}" + ("" if module == "builtins" else f" of {module}")


def _number(listed: Sequence[object], what: str) -> str:
    return f"{len(listed)} {what}{'' if len(listed) == 1 else 's'}"
