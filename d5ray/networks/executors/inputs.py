"""The inputs that a user gives a network: checked against what it takes before anything runs"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from d5ray.errors import ConfigurationError, nearest
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

if TYPE_CHECKING:
    from d5ray.networks.network import Network

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, TensorDescriptor | None]  # by name; None where the type and shape are not known
Kind = tuple[str, tuple[int, ...]]  # the name of the type of its elements, and its shape


def as_arrays(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs, NumPy's scalars among them as arrays without axes."""
    for value in given.values() if isinstance(given, Mapping) else ():
        if isinstance(value, np.generic):
            return {name: np.asarray(v) if isinstance(v, np.generic) else v for name, v in given.items()}
    return given


def open_sizes(
    known: Mapping[str, TensorDescriptor], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """The sizes behind names such as "batch", by the shapes of tensors that use them."""
    found: dict[str, int] = {}
    for name, shape in shapes.items():
        declared = known[name].shape if name in known else None
        for axis, size in zip(declared or (), shape, strict=False):
            if isinstance(axis, str):
                found[axis] = size
    return found


def check_names(known: Inputs, given: Mapping[str, object], of: str = "network") -> None:
    """Raise `ConfigurationError` for an input that the network, or whatever it is of, has not."""
    for name in given:
        if name not in known:
            raise ConfigurationError(
                f"the {of} has no input {name!r}: {nearest(name, known)}; it takes {_listed(known)}"
            )


def check_complete(known: Inputs, given: Mapping[str, object], needed: Iterable[str], what: str) -> None:
    """Raise `ConfigurationError` where an input is missing that `what` needs."""
    missing = [name for name in needed if name not in given]
    if missing:
        listed = _listed({name: known[name] for name in missing})
        found = ", ".join(map(repr, given)) or "none"
        raise ConfigurationError(f"{what} needs the input {listed}: the inputs given are {found}")


def check_values(network: "Network", given: Mapping[str, Array]) -> None:
    """Raise `ConfigurationError` unless every array has its input's type and shape.

    Where shapes share the name of an open size, such as "batch", the arrays must agree on it.
    """
    check_arrays(network.inputs, given)
    check_kinds(network, {name: (str(value.dtype), value.shape) for name, value in given.items()})


def check_arrays(known: Inputs, given: Mapping[str, object]) -> None:
    """Raise `ConfigurationError` for a value that is no array."""
    for name, value in given.items():
        if not isinstance(value, np.ndarray):
            expected = "" if known[name] is None else f" {known[name]}"
            raise ConfigurationError(
                f"the input {name!r} is a {type(value).__name__}, expected a NumPy array{expected}: convert "
                "it with numpy.asarray"
            )


def check_kinds(network: "Network", given: Mapping[str, Kind]) -> None:
    """Check the inputs' names, types and shapes, for arrays of any framework."""
    sizes: dict[str, tuple[int, str]] = {}
    for name, kind in given.items():
        _check_kind(name, kind, network.inputs[name], sizes)


def _check_kind(name: str, kind: Kind, expected: TensorDescriptor, sizes: dict[str, tuple[int, str]]) -> None:
    dtype, shape = kind
    found = f"{dtype} {shape}"
    if dtype != str(expected.dtype):
        raise ConfigurationError(
            f"the input {name!r} is {found}, expected {expected}: convert it with "
            f".astype({str(expected.dtype)!r})"
        )
    if expected.shape is None:
        return
    if len(shape) != len(expected.shape):
        raise ConfigurationError(
            f"the input {name!r} is {found}, expected {expected}: it needs {len(expected.shape)} axes, and "
            f"has {len(shape)}"
        )
    for axis, (size, wanted) in enumerate(zip(shape, expected.shape, strict=True)):
        if isinstance(wanted, int) and size != wanted:
            raise ConfigurationError(
                f"the input {name!r} is {found}, expected {expected}: axis {axis} has {size} elements, and "
                f"the network takes {wanted}"
            )
        if isinstance(wanted, str):
            first, where = sizes.setdefault(wanted, (size, name))
            if first != size:
                raise ConfigurationError(
                    f"the size {wanted!r} is {size} in the input {name!r}, {found}, and {first} in "
                    f"{where!r}: give inputs that agree"
                )


def _listed(known: Inputs) -> str:
    each = (f"{name!r}" if kind is None else f"{name!r} ({kind})" for name, kind in known.items())
    return ", ".join(each) or "none"
