"""Checks that tensors fit descriptors, and the sizes that a descriptor leaves open"""

from collections.abc import Mapping, Sequence

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array
from d5ray.operators.tensors.tensor_descriptor import Dimension, TensorDescriptor

Sizes = Mapping[str, Dimension]


def bound(
    operator: str, expected: Sequence[TensorDescriptor], found: Sequence[TensorDescriptor | None]
) -> Sizes:
    """The sizes behind the names among the expected ones, given what was found.

    Raises `ConfigurationError`, naming operator and input, where number, type or shape do not fit. What is
    unknown fits everything.
    """
    if len(found) != len(expected):
        raise ConfigurationError(
            f"the operator {operator} takes {_count(len(expected), 'input')}, found {len(found)}"
        )
    sizes: dict[str, Dimension] = {}
    for index, (wanted, given) in enumerate(zip(expected, found, strict=True)):
        if given is None:
            continue
        if given.dtype != wanted.dtype:
            raise ConfigurationError(
                f"input {index} of the operator {operator} is {given}, expected {wanted}: cast it to "
                f"{wanted.dtype}, or make the operator for {given.dtype}"
            )
        _bind(operator, index, wanted, given, sizes)
    return sizes


def substituted(descriptors: Sequence[TensorDescriptor], sizes: Sizes) -> tuple[TensorDescriptor, ...]:
    """The descriptors with every name replaced by what it stands for, where that is known."""
    return tuple(
        descriptor
        if descriptor.shape is None
        else TensorDescriptor(
            descriptor.dtype,
            [sizes.get(size, size) if isinstance(size, str) else size for size in descriptor.shape],
        )
        for descriptor in descriptors
    )


def fits(expected: TensorDescriptor, array: Array) -> bool:
    """True if an array has the type, and every size that is known."""
    if expected.dtype != array.dtype:
        return False
    shape = expected.shape
    return shape is None or (
        len(shape) == array.ndim
        and all(
            wanted == given or not isinstance(wanted, int)
            for wanted, given in zip(shape, array.shape, strict=True)
        )
    )


def is_known(descriptor: TensorDescriptor) -> bool:
    """True if the descriptor leaves no size open."""
    return descriptor.shape is not None and all(isinstance(size, int) for size in descriptor.shape)


def _bind(
    operator: str,
    index: int,
    wanted: TensorDescriptor,
    given: TensorDescriptor,
    sizes: dict[str, Dimension],
) -> None:
    if wanted.shape is None or given.shape is None:
        return
    whole = f"input {index} of the operator {operator} is {given}, expected {wanted}"
    if len(wanted.shape) != len(given.shape):
        raise ConfigurationError(
            f"{whole}: it has {_count(len(given.shape), 'axis', 'axes')} instead of {len(wanted.shape)}"
        )
    for axis, (size, actual) in enumerate(zip(wanted.shape, given.shape, strict=True)):
        if isinstance(size, str):
            before = sizes.get(size)
            if before is None:
                sizes[size] = actual
            elif isinstance(before, int) and isinstance(actual, int) and before != actual:
                raise ConfigurationError(
                    f"{whole}: {size} is {before} elsewhere, and {actual} on axis {axis}"
                )
            elif isinstance(actual, int):
                sizes[size] = actual
        elif isinstance(size, int) and isinstance(actual, int) and size != actual:
            raise ConfigurationError(f"{whole}: axis {axis} has {actual} elements instead of {size}")


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
