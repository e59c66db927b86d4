"""Writing into an array at places that may repeat, and the index that names every place of a tensor"""

from collections.abc import Sequence
from typing import Any

from d5ray.operators.array_operator import Array
from d5ray.ops.arrays.known import on_host

Index = tuple[Any, ...]  # what stands between the brackets of an array


def combine_at(xp: Any, reduction: str, target: Array, index: Index, values: Array) -> None:
    """target[index] ∘= values in place, once for every time that a place is named.

    reduction: add, multiply, maximum or minimum, as the array module calls them. CuPy adds on the device,
    in no certain order; the others it does not know for every type, and they are done on the host.
    """
    function = getattr(xp, reduction)
    if xp.__name__ != "cupy":
        function.at(target, index, values)
    elif reduction == "add" and target.dtype.kind in "fiu" and target.dtype.itemsize >= 4:
        if target.dtype == "int64":  # CUDA adds unsigned ones atomically; the bits of the sum are the same
            target, values = target.view("uint64"), values.view("uint64")
        xp.add.at(target, index, values)
    else:
        import numpy  # noqa: PLC0415 - the one on the host, beside xp

        copy = on_host(target).copy()
        getattr(numpy, reduction).at(copy, tuple(map(_index_on_host, index)), on_host(values))
        target[...] = xp.asarray(copy)


def _index_on_host(part: Any) -> Any:
    return part if isinstance(part, slice) else on_host(part)


def along(xp: Any, indices: Array, axis: int) -> Index:
    """The index that picks data[i₀, …, indices[i₀, …, iₙ], …, iₙ] for all i of the shape of indices."""
    return tuple(
        indices if each == axis else xp.arange(size).reshape(-1, *[1] * (indices.ndim - 1 - each))
        for each, size in enumerate(indices.shape)
    )


def rows(xp: Any, indices: Array, batch_dims: int = 0) -> Index:
    """The index of which the last axis of `indices` names the coordinates, after batch_dims that go along."""
    leading: Sequence[Array] = [
        xp.arange(size).reshape(-1, *[1] * (indices.ndim - 2 - each))
        for each, size in enumerate(indices.shape[:batch_dims])
    ]
    return (*leading, *(indices[..., each] for each in range(indices.shape[-1])))
