"""Operators of one's own on arrays of NumPy and CuPy"""

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, final

from d5ray.errors import ConfigurationError, D5Error
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.custom.custom_operator import CustomOp
from d5ray.operators.custom.registry import operator_of
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext


@final
class ArrayOperation:
    """An operator as a function of arrays: it gives one, or a tuple where there are several outputs.

    NumPy and CuPy have no automatic differentiation: `backward` gives the gradients.
    """

    def __init__(self, xp: ModuleType, op: CustomOp) -> None:
        self.op = op
        self._xp = xp

    def __call__(self, *inputs: Array) -> Any:
        """Raises `ConfigurationError` for inputs that do not fit, `OperatorError` for wrong results."""
        outputs = self.forward(inputs)
        return outputs[0] if len(outputs) == 1 else outputs

    def forward(self, inputs: Sequence[Array]) -> Arrays:
        """The outputs as a tuple, for a list of inputs."""
        return self.op.run_forward(self._xp, [self._array(each) for each in inputs])

    def backward(
        self, grads: Sequence[Array], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> Gradients:
        """The gradients with respect to the inputs, from those with respect to the outputs.

        Raises `ConfigurationError` where the operator has none.
        """
        return self.op.run_backward(self._xp, grads, inputs, outputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return _operation, (self._xp.__name__, self.op)

    def _array(self, value: Any) -> Array:
        if isinstance(value, self._xp.ndarray):
            return value
        if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
            return self._xp.asarray(value)
        name = self._xp.__name__
        raise ConfigurationError(
            f"the operator {self.op.operator_name} takes arrays of {name}, found a "
            f"{type(value).__name__}: give {name}.asarray(value, dtype=...)"
        )


def _operation(module: str, op: CustomOp) -> ArrayOperation:
    return ArrayOperation(import_module(module), op)


@final
class CustomArrayOperator(ArrayOperator):
    """The registered operator of one node; the only one that may keep something between calls."""

    def __init__(self, node: Node) -> None:
        """Raises `ConfigurationError`, naming the node, where nothing is registered for it."""
        self.op = operator_of(node)

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        try:
            outputs = self.op.run_forward(xp, inputs)
        except D5Error as error:
            raise type(error)(f"the node {context.node}: {error}") from error
        checked_number(self.op, context.node, len(outputs))
        return outputs

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        grads = [
            xp.zeros(output.shape, output.dtype) if gradient is None else gradient
            for gradient, output in zip(gradients, outputs, strict=True)
        ]
        try:
            return self.op.run_backward(xp, grads, inputs, outputs)
        except D5Error as error:
            raise type(error)(f"the node {context.node}: {error}") from error


def checked_number(op: CustomOp, node: Node, found: int) -> None:
    """Raise `ConfigurationError` where a node names more outputs than its operator gives."""
    if found < len(node.outputs):
        raise ConfigurationError(
            f"the node {node} names {len(node.outputs)} outputs, but its operator {op.operator_name} "
            f"gives {found}"
        )


def instance_of(op: Any) -> CustomOp:
    """An operator, or one made of a class of them that needs no arguments.

    Raises `ConfigurationError` for anything else.
    """
    if isinstance(op, type) and issubclass(op, CustomOp):
        try:
            return op()
        except TypeError as error:
            raise ConfigurationError(
                f"an operator cannot be made of the class {op.__name__} alone: {error}; give an object of it"
            ) from error
    if not isinstance(op, CustomOp):
        raise ConfigurationError(
            f"{op!r} is no operator: give an object of a class derived from d5ray.CustomPythonOp, or what "
            "d5ray.compile_custom_cppop gives"
        )
    return op
