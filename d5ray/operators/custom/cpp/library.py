"""A built operator in this process: its functions, and the objects of the user's class"""

import ctypes
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

from d5ray.errors import ConfigurationError, OperatorError
from d5ray.operators.custom.cpp.element_types import tensors
from d5ray.operators.custom.cpp.wrapper import Interface
from d5ray.operators.tensors.tensor_descriptor import Dimension, TensorDescriptor

Argument = bool | int | float | str
_PASSED: dict[type, Any] = {
    bool: ctypes.c_bool,
    int: ctypes.c_int64,
    float: ctypes.c_double,
    str: ctypes.c_char_p,
}
_BACKWARD, _FORWARD_CUDA, _BACKWARD_CUDA = 1, 2, 4


@final
class Library:
    """The functions of a shared library; calls let other threads of Python run."""

    def __init__(self, path: Path, interface: Interface) -> None:
        """Raises `OSError` where the file is no library."""
        self.name = interface.name
        self._library = ctypes.CDLL(str(path))
        pointer, number = ctypes.c_void_p, ctypes.c_int32
        inputs, outputs = len(interface.inputs), len(interface.outputs)
        forward = [pointer] * (inputs + outputs)
        backward = [pointer] * (2 * inputs + 2 * outputs)
        self.forward = self._function("d5_forward", number, [pointer, number, *forward])
        self.backward = self._function("d5_backward", number, [pointer, number, *backward])
        self.forward_cuda = self._function("d5_forward_cuda", number, [pointer, number, pointer, *forward])
        self.backward_cuda = self._function("d5_backward_cuda", number, [pointer, number, pointer, *backward])
        self.create = self._function(
            "d5_create",
            number,
            [pointer, pointer, number, pointer, number, *(_PASSED[kind] for kind in interface.arguments)],
        )
        self.destroy = self._function("d5_destroy", None, [pointer])
        self.tell = self._function("d5_report", number, [pointer, pointer, pointer])
        self.abilities = self._function("d5_abilities", number, [pointer])
        self.error = self._function("d5_error", ctypes.c_char_p, [])
        self.differentiable = bool(self.abilities(None) & _BACKWARD)

    def failed(self, method: str) -> OperatorError:
        """The error for an exception that left the user's code in this thread."""
        said = (self.error() or b"").decode("utf-8", errors="replace")
        return OperatorError(f"{method} of the C++ operator {self.name} failed: {said}")

    def _function(self, name: str, result: Any, arguments: Sequence[Any]) -> Any:
        function = getattr(self._library, name)
        function.restype, function.argtypes = result, list(arguments)
        return function


@final
class Instance:
    """An object of the user's class, made for inputs of these shapes; destroyed with the last use of this."""

    def __init__(
        self,
        library: Library,
        inputs: Sequence[TensorDescriptor],
        outputs: tuple[TensorDescriptor, ...],
        arguments: Sequence[Argument],
    ) -> None:
        """Raises `OperatorError` where the constructor throws."""
        self.outputs = outputs
        self.kept: Any = None  # what PyTorch's operations keep about it
        self._descriptors = tensors(inputs), tensors(outputs)  # the object may keep pointers to them
        made = ctypes.c_void_p()
        passed = [each.encode() if isinstance(each, str) else each for each in arguments]
        failed = library.create(
            ctypes.addressof(made),
            ctypes.addressof(self._descriptors[0]),
            len(inputs),
            ctypes.addressof(self._descriptors[1]),
            len(outputs),
            *passed,
        )
        if failed:
            raise library.failed("the constructor")
        if not made.value:
            raise OperatorError(f"create_new_op of the C++ operator {library.name} gave no object")
        self.handle: int = made.value
        self._library = library
        self._finalizer = weakref.finalize(self, _destroy, library, made.value, self._descriptors)
        self._finalizer.atexit = False  # the process ends: the library may be gone by then
        abilities = library.abilities(self.handle)
        self.runs_on_cuda = bool(abilities & _FORWARD_CUDA)
        self.differentiable_on_cuda = bool(abilities & _BACKWARD_CUDA)

    def report(self, data: int | None) -> int:
        """The number that the object's `report` tells. Raises `OperatorError` where that throws."""
        told = ctypes.c_int64()
        if self._library.tell(self.handle, data, ctypes.addressof(told)):
            raise self._library.failed("report")
        return told.value


def _destroy(library: Library, handle: int, descriptors: Any) -> None:
    library.destroy(handle)
    del descriptors  # which live as long as the object


Arguments = Sequence[Argument] | Callable[..., Sequence[Argument]]


def with_sizes(descriptors: Sequence[TensorDescriptor]) -> list[TensorDescriptor]:
    """The descriptors with 1 for every size that is open."""
    return [TensorDescriptor(each.dtype, [_size(size) for size in each.shape or ()]) for each in descriptors]


def _size(size: Dimension) -> int:
    return size if isinstance(size, int) else 1


def kinds(name: str, arguments: Sequence[Argument]) -> tuple[type, ...]:
    """The types of a C++ operator's arguments, in their order.

    Raises ConfigurationError for what is no number, boolean or text, and for integers beyond 64 bits.
    """
    if (
        isinstance(arguments, (list, tuple))
        and all(type(each) in (bool, int, float, str) for each in arguments)
        and all(type(each) is not int or abs(each) < 2**63 for each in arguments)
    ):
        return tuple([type(each) for each in arguments])
    raise ConfigurationError(
        f"the arguments of the C++ operator {name} are {arguments!r}, expected a tuple of numbers, truth "
        "values and texts (integers below 2^63), or a function that gives one: arguments=(16,)"
    )
