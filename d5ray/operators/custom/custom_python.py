"""CustomPythonOp: a custom operator in Python"""

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.custom.custom_operator import CustomOp, checked_descriptors, without_gradient
from d5ray.operators.custom.returned_values import (
    checked_gradients,
    checked_outputs,
    described,
    returned_by,
)
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor


class CustomPythonOp(CustomOp):
    """Derive from this class, and define `forward` and, where a gradient is needed, `backward`.

    `forward(self, inputs)`, with one parameter of exactly this name, gets the list of inputs. With any other
    parameters, `forward(self, x)`, `forward(self, x, target)`, `forward(self, *arrays)`, it gets them one by
    one. It returns an array, or a tuple of arrays. `backward(self, grads, fwd_inputs, fwd_outputs)` gets
    lists, the gradient with respect to every output first, and returns the gradient for the input, or a tuple
    with one for each, None where an input has none.

    Arrays are NumPy's, read-only and in the framework's memory, or CuPy's on a GPU. Results have the types of
    the descriptors, gradients those of the inputs; results that the operator keeps in `self` are copied.
    `backward` must take what it needs from its arguments: `self` knows only the last call, and a network may
    use the operator twice.
    """

    def __init__(
        self,
        input_descriptors: Sequence[TensorDescriptor] | None = None,
        output_descriptors: Sequence[TensorDescriptor] | None = None,
    ) -> None:
        """Raises `ConfigurationError` for what is no list of descriptors."""
        self.input_descriptors = checked_descriptors(self.operator_name, "inputs", input_descriptors)
        self.output_descriptors = checked_descriptors(self.operator_name, "outputs", output_descriptors)

    def forward(self, *inputs: Any) -> Any:
        """The outputs for the inputs."""
        raise ConfigurationError(
            f"the operator {self.operator_name} has no forward: define forward(self, inputs)"
        )

    def backward(self, grads: list[Array], fwd_inputs: list[Array], fwd_outputs: list[Array]) -> Any:
        """The gradients with respect to the inputs."""
        raise without_gradient(self.operator_name)

    @property
    def differentiable(self) -> bool:
        return type(self).backward is not CustomPythonOp.backward

    def run_forward(self, xp: Any, inputs: Sequence[Array | None]) -> Arrays:
        """Raises `ConfigurationError` for inputs that do not fit, `OperatorError` for wrong results."""
        expected = self._expected_outputs(inputs) if self._says_its_outputs else None
        name = self.operator_name
        listed = returned_by(name, "forward", self._forward_of_list, _guarded(xp, inputs))
        return checked_outputs(name, xp, listed, expected)

    def run_backward(
        self, xp: Any, grads: Sequence[Array], inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> Gradients:
        """The user's gradients, checked. Raises `ConfigurationError` without a backward, `OperatorError`."""
        given = [_guarded(xp, each) for each in (grads, inputs, outputs)]
        listed = returned_by(self.operator_name, "backward", self.backward, *given)
        return checked_gradients(self.operator_name, xp, listed, inputs)

    def _expected_outputs(self, inputs: Sequence[Array | None]) -> tuple[TensorDescriptor, ...] | None:
        """The outputs' descriptors, remembered for the shapes and types that were seen last."""
        key = tuple([None if each is None else (each.dtype, each.shape) for each in inputs])
        if key not in self._outputs_seen:
            if len(self._outputs_seen) >= _KEPT:
                self._outputs_seen.clear()
            self._outputs_seen[key] = self.inferred(
                [None if each is None else described(each) for each in inputs]
            )
        return self._outputs_seen[key]

    @cached_property
    def _outputs_seen(self) -> dict[Any, tuple[TensorDescriptor, ...] | None]:
        return {}

    @cached_property
    def _says_its_outputs(self) -> bool:
        """True if the operator says anything about its results, which Deep500's slides leave open."""
        return self.output_descriptors is not None or type(self).infer is not CustomOp.infer

    @cached_property
    def _forward_of_list(self) -> Callable[[list[Array | None]], Any]:
        forward: Callable[..., Any] = self.forward
        parameters = list(inspect.signature(forward).parameters.values())
        if [each.name for each in parameters] == ["inputs"] and parameters[0].kind in _POSITIONAL:
            return forward
        return lambda inputs: forward(*inputs)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _COMPUTED}


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_COMPUTED = ("_forward_of_list", "_says_its_outputs", "_outputs_seen")
_KEPT = 256


def _guarded(xp: Any, arrays: Sequence[Array | None]) -> list[Array | None]:
    """The arrays as a list; NumPy's in a form that an operator cannot write to, nor to their `base`."""
    if xp is not np:
        return list(arrays)
    return [None if array is None else _read_only(array) for array in arrays]


def _read_only(array: Array) -> Array:
    """A view whose base cannot be written either, and which nobody can make writable again."""
    if array.dtype.isbuiltin == 1:
        return np.asarray(memoryview(array).toreadonly())
    bits = array.view(f"u{array.dtype.itemsize}")  # of ml_dtypes, which no memoryview knows
    return np.asarray(memoryview(bits).toreadonly()).view(array.dtype)
