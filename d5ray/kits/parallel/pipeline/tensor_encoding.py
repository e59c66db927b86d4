"""Wire: conversion of a stage's arrays to those that its communicator exchanges, and back"""

import struct
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.rpc.dtypes import numpy_dtype
from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.stages.piece_executor import PieceExecutor
from d5ray.training.arrays import library_of

HostArray = np.ndarray[Any, Any]
Kind = tuple[tuple[int, ...], "np.dtype[Any]"]  # shape and type
MOST_AXES = 12
_HEADER = struct.Struct(f"<16sq{MOST_AXES}q")  # the type's name, the number of axes, their sizes


@final
class TensorCodec:
    """A conversion between an executor's arrays and those that a communicator exchanges."""

    def __init__(self, executor: PieceExecutor, communicator: Communicator) -> None:
        self._executor = executor
        self._on_device = communicator.backend == "nccl"

    # -- one tensor ------------------------------------------------------------------------------------

    def outgoing(self, array: Any) -> Any:
        """The form of the executor's array in which the communicator sends it."""
        if self._on_device:
            return array.contiguous() if hasattr(array, "contiguous") else _contiguous(array)
        host = self._executor.get(array)
        return host if host.flags.writeable else host.copy()

    def incoming(self, array: Any) -> Any:
        """The executor's array of what the communicator has received."""
        return array if self._on_device else self._executor.put(array)

    def send(self, communicator: Communicator, to: int, kind: Kind | None, array: Any) -> None:
        """Send an array of this kind; where that is not known, a header goes ahead."""
        if kind is None:
            communicator.send(self.exchanged(_header(array)), to)
        elif (tuple(array.shape), _type_of(array)) != (kind[0], kind[1].name):
            raise ConfigurationError(
                f"a piece gave a tensor of {_type_of(array)} {tuple(array.shape)}, expected by its "
                f"description {kind[1].name} {kind[0]}: mend the shape of the operator that makes it"
            )
        communicator.send(array, to)

    def receive(self, communicator: Communicator, source: int, kind: Kind | None) -> Any:
        """The array that the source's `send` sent."""
        if kind is None:
            packed = self.exchanged(np.zeros(_HEADER.size, np.uint8))
            communicator.recv(packed, source)
            kind = _read(self.numbers(packed))
        array = self._executor.empty(*kind) if self._on_device else np.empty(*kind)
        communicator.recv(array, source)
        return array

    # -- numbers for all stages ------------------------------------------------------------------------

    def exchanged(self, array: HostArray) -> Any:
        """The form in which the communicator exchanges an array in host memory, in place."""
        return self._executor.put(array) if self._on_device else array

    def numbers(self, array: Any) -> HostArray:
        """The exchanged array in host memory again."""
        return self._executor.get(array) if self._on_device else array

    def all_gathered(self, communicator: Communicator, array: HostArray) -> HostArray:
        """The array (members, ...) with every member's row."""
        exchanged = self.exchanged(array)
        if communicator.size > 1:
            communicator.all_gather(exchanged)
        return self.numbers(exchanged)

    def broadcast(self, communicator: Communicator, array: HostArray | None, root: int) -> HostArray:
        """The root's array, of any shape and type; the others give none."""
        if communicator.size == 1:
            assert array is not None
            return array
        packed = np.zeros(_HEADER.size, np.uint8) if array is None else _header(array)
        exchanged = self.exchanged(packed)
        communicator.broadcast(exchanged, root)
        if array is None:
            array = np.empty(*_read(self.numbers(exchanged)))
        exchanged = self.exchanged(array)
        communicator.broadcast(exchanged, root)
        return self.numbers(exchanged)


def _header(array: Any) -> HostArray:
    """The shape and the type of an array as bytes (n,), of the same length always."""
    if len(array.shape) > MOST_AXES:
        raise ConfigurationError(
            f"a tensor with {len(array.shape)} axes cannot travel between stages: at most {MOST_AXES}"
        )
    sizes = [*map(int, array.shape), *[0] * (MOST_AXES - len(array.shape))]
    packed = _HEADER.pack(_type_of(array).encode(), len(array.shape), *sizes)
    return np.frombuffer(bytearray(packed), np.uint8)


def _read(packed: HostArray) -> Kind:
    name, axes, *sizes = _HEADER.unpack(packed.tobytes())
    return tuple(sizes[:axes]), numpy_dtype(name.rstrip(b"\0").decode())


def _type_of(array: Any) -> str:
    """NumPy's name of the type of an array's elements, also of PyTorch's."""
    return str(array.dtype).rpartition(".")[2]


def _contiguous(array: Any) -> Any:
    return library_of(array).ascontiguousarray(array)
