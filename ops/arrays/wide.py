"""WideOperator: what computes 16-bit types in float32 and rounds once, as hardware does"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, final

import numpy as np

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.site import Site
from d5ray.ops.arrays.precision import is_floating, wide

# As IEEE 754 has it, and every framework: what overflows or is not defined gives inf or nan, without a word.
silently = np.errstate(all="ignore")


class WideOperator(ArrayOperator):
    """An operator written for float32 and float64, which takes float16 and bfloat16 too.

    types: for an output that has not the type of the first input, the input whose type it has, or None where
    it stays wide. What is kept for the backward computation stays wide.
    """

    types: ClassVar[Mapping[int, int | None]] = MappingProxyType({})

    @abstractmethod
    def compute(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        """`forward`, for inputs none of which has 16 bits."""

    @abstractmethod
    def differentiate(
        self,
        xp: Any,
        site: Site,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        """`backward`, for arrays none of which has 16 bits, and gradients not all of which are None."""

    @final
    @silently
    def forward(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        if not any(map(_narrow, inputs)):
            return self.compute(xp, site, inputs)
        asked = len(site.node.outputs)
        outputs = self.compute(xp, site, [*map(_widened, inputs)])
        rounded = (self._rounded(each, index, inputs) for index, each in enumerate(outputs[:asked]))
        return (*rounded, *outputs[asked:])

    @final
    @silently
    def backward(
        self,
        xp: Any,
        site: Site,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        if all(each is None for each in gradients):
            return (None,) * len(inputs)
        if not any(map(_narrow, inputs)):
            return self.differentiate(xp, site, gradients, inputs, outputs)
        wide = self.differentiate(
            xp, site, [*map(_widened, gradients)], [*map(_widened, inputs)], [*map(_widened, outputs)]
        )
        return tuple(
            None if each is None or given is None else each.astype(given.dtype, copy=False)
            for each, given in zip(wide, inputs, strict=True)
        )

    def _rounded(self, output: Array, index: int, inputs: Sequence[Array | None]) -> Array:
        source = self.types.get(index, 0)
        if source is None or output.dtype.kind != "f":
            return output
        given = inputs[source]
        return output if given is None else output.astype(given.dtype, copy=False)


def outputs_and_kept(site: Site, outputs: Arrays, *kept: Array) -> Arrays:
    """What `forward` gives: as many outputs as the node has, and what `backward` needs again."""
    return (*outputs[: len(site.node.outputs)], *kept)


def kept(site: Site, outputs: Sequence[Array]) -> Sequence[Array]:
    """What `outputs_and_kept` kept."""
    return outputs[len(site.node.outputs) :]


def gradient_of(gradients: Sequence[Array | None], index: int) -> Array | None:
    """The gradient with respect to this output, None where nothing depends on it."""
    return gradients[index] if index < len(gradients) else None


def optional(inputs: Sequence[Array | None], index: int) -> Array | None:
    """This input, None where it is left out."""
    return inputs[index] if index < len(inputs) else None


def _narrow(array: Array | None) -> bool:
    return array is not None and array.dtype.itemsize == 2 and is_floating(array)


def _widened(array: Array | None) -> Array | None:
    return None if array is None else wide(array)
