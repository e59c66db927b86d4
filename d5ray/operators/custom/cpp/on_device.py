"""A C++ operator on CuPy's arrays: on the GPU where it can, else by way of copies in host memory"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.custom.cpp.library import Instance, Library
from d5ray.operators.custom.returned_values import is_real


class BuiltOperator(Protocol):
    """The needed part of a `CustomCppOp`: its functions, its objects, and its way in host memory."""

    library: Library

    def instance(self, shapes: tuple[tuple[int, ...], ...]) -> Instance: ...
    def run_forward(self, xp: Any, inputs: Sequence[Array | None]) -> Arrays: ...
    def run_backward(
        self, xp: Any, grads: Sequence[Array], inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> Gradients: ...


def forward(op: BuiltOperator, xp: Any, inputs: Sequence[Array]) -> Arrays:
    """The outputs, on the current stream."""
    instance = op.instance(tuple([array.shape for array in inputs]))
    if not instance.runs_on_cuda:
        return tuple([xp.asarray(each) for each in op.run_forward(np, [each.get() for each in inputs])])
    outputs = tuple([xp.empty(each.shape, each.dtype) for each in instance.outputs])
    read = [_dense(xp, each) for each in inputs]
    pointers = [array.data.ptr for array in (*read, *outputs)]
    if op.library.forward_cuda(instance.handle, 0, xp.cuda.get_current_stream().ptr, *pointers):
        raise op.library.failed("forward_cuda")
    return outputs


def backward(
    op: BuiltOperator, xp: Any, grads: Sequence[Array], inputs: Sequence[Array], outputs: Sequence[Array]
) -> Gradients:
    """The gradients with respect to the inputs, on the current stream."""
    instance = op.instance(tuple([array.shape for array in inputs]))
    if not (instance.runs_on_cuda and instance.differentiable_on_cuda):
        on_host = [[each.get() for each in arrays] for arrays in (grads, inputs, outputs)]
        found = op.run_backward(np, on_host[0], on_host[1], on_host[2])
        return tuple([None if each is None else xp.asarray(each) for each in found])
    gradients = tuple([xp.empty(array.shape, array.dtype) for array in inputs])
    read = [_dense(xp, each) for each in (*grads, *inputs, *outputs)]
    pointers = [array.data.ptr for array in (*read, *gradients)]
    if op.library.backward_cuda(instance.handle, 0, xp.cuda.get_current_stream().ptr, *pointers):
        raise op.library.failed("backward_cuda")
    return tuple([each if is_real(each.dtype) else None for each in gradients])


def _dense(xp: Any, array: Array) -> Array:
    """The array itself where its elements lie in C order, else a copy."""
    return array if array.flags.c_contiguous else xp.array(array, order="C")
