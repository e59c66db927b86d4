"""The arguments that Python gives to the constructor of a C++ operator"""

from collections.abc import Callable, Sequence

from d5ray.errors import ConfigurationError
from d5ray.operators.custom.cpp.library import Argument
from d5ray.operators.tensors.tensor_descriptor import Dimension, TensorDescriptor

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
