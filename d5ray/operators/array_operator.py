"""ArrayOperator: an operator in terms of an array module, NumPy or CuPy, forwards and backwards."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from d5ray.operators.nodes.node_context import NodeContext

Array = Any  # of the array module
Arrays = tuple[Array, ...]
Gradients = tuple[Array | None, ...]


class ArrayOperator(ABC):
    """One operator type, written once for NumPy and CuPy: the reference that the frameworks are held against.

    `xp` is the array module. An implementation keeps nothing between calls, changes no array that it is
    given, and computes in the type of its inputs.
    """

    @abstractmethod
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        """The outputs, in the node's order; None among the inputs stands for one that is left out.

        What is given beyond the node's outputs, such as the mask of a Dropout, is kept for `backward`.
        """

    @abstractmethod
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        """The gradient with respect to every input, of its shape and type, None where there is none.

        gradients: with respect to every output that `forward` gave, None where nothing depends on it.
        """


class WithoutGradient(ArrayOperator):
    """An operator whose outputs do not change with its inputs where that is defined: ArgMax, Shape, Equal."""

    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        return (None,) * len(inputs)
