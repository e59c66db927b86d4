"""WideOperator: what computes 16-bit types in float32 and rounds once, as hardware does"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, wide

# As IEEE 754 has it, and every framework: what overflows or is not defined gives inf or nan, without a word.
silently = np.errstate(all="ignore")


class WideOperator(ArrayOperator):
    """An operator written for float32 and float64, which takes float16 and bfloat16 too.

    needs: how many inputs, from the first on, must be given. types: for an output that has not the type of
    the first input, the input whose type it has, or None where it stays wide. What is kept for the backward
    computation stays wide. Inputs that do not fit one another raise `ConfigurationError`, naming the node.
    """

    needs: ClassVar[int] = 1
    types: ClassVar[Mapping[int, int | None]] = MappingProxyType({})

    @abstractmethod
    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        """`forward`, for inputs none of which has 16 bits."""

    @abstractmethod
    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        """`backward`, for arrays none of which has 16 bits, and gradients not all of which are None."""

    @final
    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        if not any(map(_narrow, inputs)):
            return self._computed(xp, context, inputs)
        asked = len(context.node.outputs)
        outputs = self._computed(xp, context, [*map(_widened, inputs)])
        rounded = (self._rounded(each, index, inputs) for index, each in enumerate(outputs[:asked]))
        return (*rounded, *outputs[asked:])

    @final
    @silently
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        if all(each is None for each in gradients):
            return (None,) * len(inputs)
        arrays: Any = (gradients, inputs, outputs)
        if any(map(_narrow, inputs)):
            arrays = ([*map(_widened, each)] for each in arrays)
        found = self.differentiate(xp, context, *arrays)
        return tuple(
            None
            if gradient is None or given is None or not is_floating(given)
            else gradient.astype(given.dtype, copy=False)
            for gradient, given in zip(found, inputs, strict=True)
        )

    def _computed(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        if len(inputs) < self.needs or any(each is None for each in inputs[: self.needs]):
            raise ConfigurationError(
                f"{context.node} must have its first {self.needs} inputs: give what is missing"
            )
        try:
            return self.compute(xp, context, inputs)
        except (ValueError, IndexError) as error:  # the array module's, which knows of no node
            found = ", ".join("none" if each is None else f"{each.dtype} {each.shape}" for each in inputs)
            raise ConfigurationError(f"{context.node} cannot take inputs of {found}: {error}") from error

    def _rounded(self, output: Array, index: int, inputs: Sequence[Array | None]) -> Array:
        source = self.types.get(index, 0)
        if source is None or output.dtype.kind != "f":
            return output
        given = inputs[source]
        return output if given is None else output.astype(given.dtype, copy=False)


def outputs_and_kept(context: NodeContext, outputs: Arrays, *kept: Array) -> Arrays:
    """The outputs of `forward`: as many as the node has, and those that `backward` needs again."""
    return (*outputs[: len(context.node.outputs)], *kept)


def kept(context: NodeContext, outputs: Sequence[Array]) -> Sequence[Array]:
    """The outputs that `outputs_and_kept` kept."""
    return outputs[len(context.node.outputs) :]


def gradient_of(gradients: Sequence[Array | None], index: int) -> Array | None:
    """The gradient with respect to this output, None where nothing depends on it."""
    return gradients[index] if index < len(gradients) else None


def optional(inputs: Sequence[Array | None], index: int) -> Array | None:
    """The input at this place, None if it is left out."""
    return inputs[index] if index < len(inputs) else None


def _narrow(array: Array | None) -> bool:
    return array is not None and array.dtype.itemsize == 2 and is_floating(array)


def _widened(array: Array | None) -> Array | None:
    return None if array is None else wide(array)
