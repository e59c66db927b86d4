"""Operators of one's own on PyTorch's tensors, whose memory they share"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

import numpy as np
import torch

from d5ray.errors import ConfigurationError
from d5ray.operators.custom.cpp.custom_cpp import CustomCppOp
from d5ray.operators.custom.cpp.library import Instance
from d5ray.operators.custom.custom_operator import CustomOp, without_gradient
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.torch import types

Tensors = tuple[torch.Tensor, ...]
TensorGradients = tuple[torch.Tensor | None, ...]
MaybeTensors = Sequence[torch.Tensor | None]


class Runner(ABC):
    """An operator on tensors, without automatic differentiation."""

    @abstractmethod
    def forward(self, inputs: MaybeTensors) -> Tensors:
        """The outputs, in memory of their own."""

    @abstractmethod
    def backward(
        self, grads: Sequence[torch.Tensor], inputs: MaybeTensors, outputs: Sequence[torch.Tensor]
    ) -> TensorGradients:
        """The gradients with respect to the inputs."""


def runner_of(op: CustomOp) -> Runner:
    """The runner of an operator: by pointers for compiled ones, by arrays for all others."""
    return CppRunner(op) if isinstance(op, CustomCppOp) else ArrayRunner(op)


@final
class ArrayRunner(Runner):
    """A runner by NumPy's arrays; on a GPU CuPy's, if it is installed, else copies in host memory."""

    def __init__(self, op: CustomOp) -> None:
        self._op = op

    def forward(self, inputs: MaybeTensors) -> Tensors:
        xp = _module(self._op.operator_name, inputs)
        given = [None if each is None else array_of(xp, each) for each in inputs]
        return tuple([_as_tensor(xp, each, inputs) for each in self._op.run_forward(xp, given)])

    def backward(
        self, grads: Sequence[torch.Tensor], inputs: MaybeTensors, outputs: Sequence[torch.Tensor]
    ) -> TensorGradients:
        tensors = (*grads, *inputs, *outputs)
        xp = _module(self._op.operator_name, tensors)
        arrays = [None if each is None else array_of(xp, each) for each in tensors]
        first, last = len(grads), len(grads) + len(inputs)
        found = self._op.run_backward(xp, arrays[:first], arrays[first:last], arrays[last:])
        return tuple([None if each is None else _as_tensor(xp, each, tensors) for each in found])


@final
class CppRunner(Runner):
    """A runner by pointers to the tensors' elements. OpenMP uses as many threads as PyTorch."""

    def __init__(self, op: CustomCppOp) -> None:
        self._op = op
        self._library = op.library
        self._types = [torch_type(each) for each in op.input_descriptors or ()]
        self._elsewhere = ArrayRunner(op)

    def forward(self, inputs: MaybeTensors) -> Tensors:
        instance = self._op.instance(tuple([each.shape for each in inputs]))  # type: ignore[union-attr]
        dense = self._dense(inputs)
        if dense is None:
            return self._elsewhere.forward(inputs)
        outputs = tuple([torch.empty(shape, dtype=dtype) for shape, dtype in self._made_by(instance)])
        pointers = [each.data_ptr() for each in (*dense, *outputs)]
        if self._library.forward(instance.handle, torch.get_num_threads(), *pointers):
            raise self._library.failed("forward")
        return outputs

    def backward(
        self, grads: Sequence[torch.Tensor], inputs: MaybeTensors, outputs: Sequence[torch.Tensor]
    ) -> TensorGradients:
        if not self._library.differentiable:
            raise without_gradient(self._op.operator_name)
        dense = self._dense(inputs)
        if dense is None:
            return self._elsewhere.backward(grads, inputs, outputs)
        instance = self._op.instance(tuple([each.shape for each in dense]))
        gradients = [torch.empty(each.shape, dtype=each.dtype) for each in dense]
        around = [each if each.is_contiguous() else each.contiguous() for each in grads]
        kept = [each if each.is_contiguous() else each.contiguous() for each in outputs]
        pointers = [each.data_ptr() for each in (*around, *dense, *kept, *gradients)]
        if self._library.backward(instance.handle, torch.get_num_threads(), *pointers):
            raise self._library.failed("backward")
        return tuple([each if each.is_floating_point() else None for each in gradients])

    def _dense(self, inputs: MaybeTensors) -> list[torch.Tensor] | None:
        """The inputs in C order; None where one is not in host memory.

        Raises `ConfigurationError` where one is missing or of another type.
        """
        dense = []
        for index, (given, dtype) in enumerate(zip(inputs, self._types, strict=True)):
            if given is None or given.dtype is not dtype:
                raise self._unfit(index, given)
            if not given.is_cpu:
                return None
            dense.append(given if given.is_contiguous() else given.contiguous())
        return dense

    def _unfit(self, index: int, given: torch.Tensor | None) -> ConfigurationError:
        expected = self._types[index]
        found = "left out" if given is None else f"of the type {given.dtype}"
        return ConfigurationError(
            f"input {index} of the C++ operator {self._op.operator_name} is {found}, expected "
            f"{expected}: cast it with .to({expected}), or compile the operator for the other type"
        )

    def _made_by(self, instance: Instance) -> list[tuple[Any, torch.dtype]]:
        if instance.kept is None:
            instance.kept = [(each.sizes, torch_type(each)) for each in instance.outputs]
        return instance.kept  # type: ignore[no-any-return]  # set here alone


def torch_type(descriptor: TensorDescriptor) -> torch.dtype:
    """PyTorch's type of a descriptor. Raises `ConfigurationError` where it has none."""
    found = getattr(torch, str(descriptor.dtype), None)
    if not isinstance(found, torch.dtype):
        raise ConfigurationError(f"PyTorch has no type of elements for {descriptor}")
    return found


def array_of(xp: Any, tensor: torch.Tensor) -> Any:
    """An array that shares the tensor's memory."""
    plain = tensor.detach()
    if xp is not np:
        return xp.from_dlpack(plain)
    return types.array_of(plain)


def tensor_of(array: Any) -> torch.Tensor:
    """A tensor over a NumPy array, which is copied where PyTorch cannot have it as it is."""
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()
    return types.tensor_of(array)


def _as_tensor(xp: Any, array: Any, tensors: MaybeTensors) -> torch.Tensor:
    """A result as a tensor over its memory, on the device of what was given."""
    if xp is not np:
        return torch.utils.dlpack.from_dlpack(array)
    made = tensor_of(array)
    first = next((each for each in tensors if each is not None), None)
    return made if first is None or first.is_cpu else made.to(first.device)


def _module(operator: str, tensors: MaybeTensors) -> Any:
    """NumPy for tensors in host memory; for others CuPy where there is one, else NumPy by way of copies.

    Raises `ConfigurationError` where tensors lie on several devices.
    """
    for tensor in tensors:
        if tensor is not None and not tensor.is_cpu:
            break
    else:
        return np
    devices = {str(tensor.device) for tensor in tensors if tensor is not None}
    if len(devices) > 1:
        raise ConfigurationError(
            f"the operator {operator} got tensors on {' and '.join(sorted(devices))}: move them to one device"
        )
    try:
        import cupy  # noqa: PLC0415 - only where there are tensors on a GPU
    except ImportError:
        return np
    return cupy if devices.pop().startswith("cuda") else np
