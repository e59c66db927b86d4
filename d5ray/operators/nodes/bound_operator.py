"""BoundOperator: an operator of an array module with its node context, as a function of arrays"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext


@final
@dataclass(frozen=True)
class BoundOperator:
    """A function of arrays of NumPy or CuPy that gives the node's output, or a tuple of them.

    `forward` and `backward` are those of a custom operator: lists of arrays, outputs that only `backward`
    needs among them.
    """

    operator: ArrayOperator
    context: NodeContext

    def __call__(self, *inputs: Array | None) -> Array | Arrays:
        outputs = self.forward(inputs)[: len(self.context.node.outputs)]
        return outputs[0] if len(outputs) == 1 else outputs

    def forward(self, inputs: Sequence[Array | None]) -> Arrays:
        """The outputs, those that only `backward` needs among them; None stands for an input left out."""
        return self.operator.forward(module_of(inputs), self.context, inputs)

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> Gradients:
        """The gradient of each input from those of the outputs; None where an input has none."""
        given = [*gradients, *[None] * (len(outputs) - len(gradients))]
        return self.operator.backward(module_of(inputs), self.context, given, inputs, outputs)

    def __str__(self) -> str:
        return str(self.context.node)


def module_of(arrays: Sequence[Array | None]) -> Any:
    """CuPy if one of the arrays is its, else NumPy."""
    roots = {type(array).__module__.partition(".")[0] for array in arrays}
    return import_module("cupy" if "cupy" in roots else "numpy")
