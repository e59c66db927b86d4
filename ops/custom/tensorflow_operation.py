"""Operators of one's own as operations of TensorFlow, with gradients, in eager mode and in `tf.function`"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, final

import numpy as np
import tensorflow as tf

from d5ray.errors import ConfigurationError, D5Error
from d5ray.operators.custom.cpp.custom_cpp import CustomCppOp
from d5ray.operators.custom.custom_operator import CallState, CustomOp, twice
from d5ray.operators.custom.registry import operator_of
from d5ray.operators.custom.returned_values import is_real
from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.custom.arrays import checked_number

try:  # whether a tape looks on, which TensorFlow's public names do not tell
    from tensorflow.python.eager.record import could_possibly_record as _is_recorded
except ImportError:

    def _is_recorded() -> bool:
        return True


Tensor = Any  # TensorFlow has no types


@final
class TensorflowOperation:
    """An operator as a function of tensors: it gives one, or a tuple where there are several outputs.

    It can be differentiated once. In a `tf.function`, an operator that does not say what its outputs are is
    taken for one with a single output of its first input's type, which is checked when it runs.
    """

    def __init__(self, op: CustomOp) -> None:
        self.op = op
        self._unconverted = tf.autograph.experimental.do_not_convert(self._apply)
        self._functions: dict[tuple[int, tuple[int, ...]], Any] = {}  # by which inputs are there

    def __call__(self, *inputs: Any) -> Any:
        """Raises `ConfigurationError` for inputs that do not fit, `OperatorError` for wrong results."""
        return self._unconverted(*inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorflowOperation, (self.op,)

    def __repr__(self) -> str:
        return f"TensorflowOperation({self.op.operator_name})"

    def _apply(self, *inputs: Any) -> Any:
        tensors = [None if each is None else tf.convert_to_tensor(each) for each in inputs]
        if tf.executing_eagerly() and not _is_recorded():
            arrays = [None if each is None else np.asarray(each) for each in tensors]
            made = [tf.convert_to_tensor(each) for each in self._run_forward(arrays)]
            return made[0] if len(made) == 1 else tuple(made)
        present = tuple([index for index, each in enumerate(tensors) if each is not None])
        key = len(tensors), present
        if (function := self._functions.get(key)) is None:
            function = self._functions[key] = tf.custom_gradient(self._with_gradient(*key))
        outputs = function(*[tensors[index] for index in present])
        return tuple(outputs) if isinstance(outputs, (list, tuple)) else outputs

    def _with_gradient(self, number: int, places: Sequence[int]) -> Callable[..., Any]:
        """The function that TensorFlow differentiates, with the inputs at these places given."""

        def spread(given: Sequence[Any]) -> list[Any]:
            whole: list[Any] = [None] * number
            for place, each in zip(places, given, strict=True):
                whole[place] = each
            return whole

        def custom_op(*given: Tensor) -> Any:
            states: list[CallState] = []  # of the last call here

            def forward(*arrays: Any) -> list[Any]:
                states[:] = [CallState(self.op)]
                found = list(self._run_forward(spread(arrays)))
                states[0].note()
                return found

            outputs = _applied(forward, given, self._expected(spread(given)))

            def backward(*arrays: Any) -> list[Any]:
                grads, kept = arrays[: len(outputs)], arrays[len(outputs) :]
                inputs, results = kept[: len(given)], kept[len(given) :]
                with states[0].again():
                    found = self._run_backward(grads, spread(inputs), results)
                return [
                    np.zeros_like(array) if found[place] is None else found[place]
                    for array, place in zip(inputs, places, strict=True)
                    if is_real(array.dtype)
                ]

            def gradient(*upstream: Tensor) -> list[Tensor | None]:
                grads = [
                    tf.zeros_like(output) if each is None else each
                    for each, output in zip(upstream, outputs, strict=True)
                ]
                expected = [(each.dtype, each.shape) for each in given if each.dtype.is_floating]
                gradients = _applied(backward, [*grads, *given, *outputs], expected)
                found = iter(_once(self.op.operator_name, gradients)(*grads, *given))
                return [next(found) if each.dtype.is_floating else None for each in given]

            return (outputs[0] if len(outputs) == 1 else outputs), gradient

        return custom_op

    def _run_forward(self, arrays: Sequence[Any]) -> Sequence[Any]:
        if isinstance(self.op, CustomCppOp):
            return self.op.run_forward(np, arrays, _threads())
        return self.op.run_forward(np, arrays)

    def _run_backward(
        self, grads: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]
    ) -> Sequence[Any]:
        if isinstance(self.op, CustomCppOp):
            return self.op.run_backward(np, grads, inputs, outputs, _threads())
        return self.op.run_backward(np, grads, inputs, outputs)

    def _expected(self, tensors: Sequence[Tensor | None]) -> list[tuple[Any, Any]]:
        """Types and shapes of the outputs in a graph, where they must be known before anything runs."""
        if tf.executing_eagerly():
            return []
        found = self.op.inferred([None if each is None else _described(each) for each in tensors])
        if found is None:
            first = next((each for each in tensors if each is not None), None)
            if first is None:
                raise ConfigurationError(
                    f"the operator {self.op.operator_name} has no inputs, and does not say what its "
                    "outputs are: give it descriptors, or define infer(inputs)"
                )
            return [(first.dtype, tf.TensorShape(None))]
        return [(tf.as_dtype(each.dtype), _tensor_shape(each)) for each in found]


def built(context: NodeContext) -> Kernel:
    """The registered operator of the node. Raises `ConfigurationError` where there is none."""
    operation = TensorflowOperation(operator_of(context.node))

    def call(*inputs: Any) -> Any:
        try:
            outputs = operation(*inputs)
        except D5Error as error:
            raise type(error)(f"the node {context.node}: {error}") from error
        listed = outputs if isinstance(outputs, tuple) else (outputs,)
        checked_number(operation.op, context.node, len(listed))
        wanted = len(context.node.outputs)
        return listed[0] if wanted == 1 else listed[:wanted]

    made: Kernel = tf.autograph.experimental.do_not_convert(call)
    return made


def _once(operator: str, gradients: Sequence[Tensor]) -> Any:
    """Gradients that are not differentiated again: that they are no constants would go unnoticed."""

    def kept(*origins: Tensor) -> Any:
        def refuse(*_: Tensor) -> Any:
            raise twice(operator)

        return [tf.identity(each) for each in gradients], refuse

    return tf.custom_gradient(kept)


def _applied(function: Any, tensors: Sequence[Tensor], expected: Sequence[tuple[Any, Any]]) -> list[Tensor]:
    """A function of arrays on tensors: at once where there are values, else as a part of the graph."""
    if all(hasattr(each, "numpy") for each in tensors):
        return [tf.convert_to_tensor(each) for each in function(*[np.asarray(each) for each in tensors])]
    made = tf.numpy_function(function, list(tensors), [dtype for dtype, _ in expected])
    listed = list(made) if isinstance(made, (list, tuple)) else [made]
    for tensor, (_, shape) in zip(listed, expected, strict=True):
        tensor.set_shape(shape)
    return listed


def _described(tensor: Tensor) -> TensorDescriptor:
    shape = tensor.shape.as_list() if tensor.shape.rank is not None else None
    return TensorDescriptor(tensor.dtype.as_numpy_dtype, shape)


def _tensor_shape(descriptor: TensorDescriptor) -> Any:
    if descriptor.shape is None:
        return tf.TensorShape(None)
    return tf.TensorShape([size if isinstance(size, int) else None for size in descriptor.shape])


@cache
def _threads() -> int:
    """OpenMP's threads, as many as TensorFlow uses within an operation, which stays so; 0 if nobody says."""
    return int(tf.config.threading.get_intra_op_parallelism_threads())
