"""LinearizationPoint: an operator at its inputs, as a gradient check sees it: vectors of all free elements"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.errors import ValidationError
from d5ray.operators.framework import Pullback

Numbers = np.ndarray[Any, Any]
Place = tuple[int, tuple[int, ...]]  # the number of an input or output, and the element


@final
@dataclass(frozen=True)
class LinearizationPoint:
    """An operator at its inputs: `at` gives its outputs at others, floating-point ones alone in one vector.

    values: the inputs; free: those of floating-point type; pullback: the gradient at `values`.
    """

    values: tuple[Numbers | None, ...]
    free: tuple[int, ...]
    at: Callable[[Sequence[Numbers | None]], tuple[Numbers, ...]]
    outputs: tuple[Numbers, ...]
    pullback: Pullback
    epsilon: float

    @property
    def taken(self) -> tuple[int, ...]:
        """The outputs that have a gradient."""
        return tuple(at for at, each in enumerate(self.outputs) if each.dtype.kind == "f" and each.size)

    @property
    def input_size(self) -> int:
        """The number of elements of all floating-point inputs."""
        return sum(self._input(at).size for at in self.free)

    @property
    def output_size(self) -> int:
        """The number of elements of all outputs that have a gradient."""
        return sum(self.outputs[at].size for at in self.taken)

    def vector(self, outputs: Sequence[Numbers]) -> Numbers:
        """The outputs that have a gradient, one after the other, (outputs,)."""
        parts = [outputs[at].astype(np.float64).ravel() for at in self.taken]
        return np.concatenate(parts) if parts else np.zeros(0)

    def along(self, ways: Sequence[Numbers]) -> Callable[[float], Numbers]:
        """The outputs as a function of how far the free inputs are moved, each its own way."""

        def moved(distance: float) -> Numbers:
            inputs = list(self.values)
            for at, way in zip(self.free, ways, strict=True):
                inputs[at] = (self._input(at) + distance * way).astype(self._input(at).dtype)
            outputs = self.at(inputs)
            if [each.shape for each in outputs] != [each.shape for each in self.outputs]:
                which = [at for at, way in zip(self.free, ways, strict=True) if way.any()]
                raise ValidationError(
                    f"the outputs change their shapes with input {', '.join(map(str, which))}: name the "
                    "inputs that have a gradient, such as with_respect_to=(0,)"
                )
            return self.vector(outputs)

        return moved

    def scales(self) -> list[Numbers]:
        """The size of a step for each element: its own if that is larger than 1; 0 if it is not finite."""
        inputs = [self._input(at).astype(np.float64) for at in self.free]
        return [np.where(np.isfinite(each), np.maximum(1.0, np.abs(each)), 0.0) for each in inputs]

    def gradient(self, weights: Numbers) -> list[Numbers]:
        """The gradient of Σ weights · outputs, for every free input; zeros where the operator has none."""
        cotangents: list[Numbers | None] = [None] * len(self.outputs)
        begin = 0
        for at in self.taken:
            output = self.outputs[at]
            cotangents[at] = weights[begin : begin + output.size].reshape(output.shape).astype(output.dtype)
            begin += output.size
        return [self._fitting(at, each) for at, each in zip(self.free, self._pulled(cotangents), strict=True)]

    def without(self) -> tuple[int, ...]:
        """The free inputs for which the operator gives None, which counts as no gradient, as in PyTorch."""
        ones = [np.ones_like(each) if at in self.taken else None for at, each in enumerate(self.outputs)]
        return tuple(at for at, each in zip(self.free, self._pulled(ones), strict=True) if each is None)

    def _pulled(self, cotangents: Sequence[Numbers | None]) -> list[Numbers | None]:
        found = self.pullback(cotangents)
        if len(found) != len(self.values):
            raise ValidationError(
                f"the gradient function gave {len(found)} arrays: it must give one, or None, for each of "
                f"{len(self.values)} inputs"
            )
        return [found[at] for at in self.free]

    def place(self, index: int, output: bool = False) -> Place:
        """The input and element, or output and element, at this index of the vector of all."""
        for at in self.taken if output else self.free:
            array = self.outputs[at] if output else self._input(at)
            if index < array.size:
                return at, tuple(map(int, np.unravel_index(index, array.shape)))
            index -= array.size
        raise IndexError(index)

    def _fitting(self, at: int, gradient: Numbers | None) -> Numbers:
        shape = self._input(at).shape
        if gradient is None:
            return np.zeros(shape)
        if gradient.shape != shape:
            raise ValidationError(
                f"the gradient of input {at} has the shape {gradient.shape}: it must be the input's, {shape}"
            )
        return gradient.astype(np.float64)

    def _input(self, at: int) -> Numbers:
        value = self.values[at]
        assert value is not None
        return value
