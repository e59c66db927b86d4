"""Element-wise operators as a function with its derivative beside it"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients, WithoutGradient
from d5ray.operators.nodes.node import Attribute
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, narrowed, wide

Attributes = Mapping[str, Attribute]  # by ONNX's names, with ONNX's defaults

# As IEEE 754 has it, and every framework: what overflows or is not defined gives inf or nan, without a word.
silently = np.errstate(all="ignore")


@final
@dataclass(frozen=True)
class Formula(ArrayOperator):
    """y = f(x), dx = dy · f′(x), element by element.

    function(xp, x, **attributes) gives y, and derivative(xp, x, y, **attributes) gives f′(x); there is none
    for what is constant wherever its derivative is defined, such as Floor.
    """

    function: Callable[..., Array]
    derivative: Callable[..., Array] | None
    attributes: Attributes = field(default_factory=dict)

    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        (x,) = inputs
        assert x is not None
        return (narrowed(xp, self.function(xp, wide(x), **values(context, self.attributes)), x),)

    @silently
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), (x,) = gradients, inputs
        if dy is None or x is None or self.derivative is None or not is_floating(x):
            return (None,)
        dy, wide_x = wide(dy), wide(x)
        slope = self.derivative(xp, wide_x, wide(outputs[0]), **values(context, self.attributes))
        return (narrowed(xp, dy * xp.asarray(slope, dtype=wide_x.dtype), x),)


@final
@dataclass(frozen=True)
class BroadcastFormula(ArrayOperator):
    """z = f(x, y), element by element, of operands that are broadcast to one shape; z is of the type of x.

    function(xp, x, y, **attributes) gives z, and derivatives(xp, dz, x, y, z, **attributes) gives dx and dy
    in the broadcast shape.
    """

    function: Callable[..., Array]
    derivatives: Callable[..., tuple[Array, Array]]
    attributes: Attributes = field(default_factory=dict)

    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, y = inputs
        assert x is not None and y is not None
        return (narrowed(xp, self.function(xp, wide(x), wide(y), **values(context, self.attributes)), x),)

    @silently
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dz,), (x, y) = gradients, inputs
        if dz is None or x is None or y is None or not is_floating(x):
            return (None, None)
        attributes = values(context, self.attributes)
        parts = self.derivatives(xp, wide(dz), wide(x), wide(y), wide(outputs[0]), **attributes)
        return tuple(
            narrowed(xp, summed_to_shape(part, operand.shape), operand) if is_floating(operand) else None
            for part, operand in zip(parts, (x, y), strict=True)
        )


@final
@dataclass(frozen=True)
class Predicate(WithoutGradient):
    """An element-wise function, function(xp, *operands, **attributes), that has no derivative anywhere."""

    function: Callable[..., Array]
    attributes: Attributes = field(default_factory=dict)

    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        operands = [wide(x) for x in inputs if x is not None]
        return (xp.asarray(self.function(xp, *operands, **values(context, self.attributes))),)


def values(context: NodeContext, defaults: Attributes) -> dict[str, Attribute]:
    """The node's attributes, in place of the defaults where it has them."""
    return {name: context.attribute(name, default) for name, default in defaults.items()} if defaults else {}


def summed_to_shape(gradient: Array, shape: tuple[int, ...]) -> Array:
    """Σ of the gradient (the broadcast shape) over the axes in which an operand of `shape` was repeated."""
    if gradient.shape == shape:
        return gradient
    new = gradient.ndim - len(shape)  # axes that the operand has not
    repeated = [
        axis
        for axis, size in enumerate(gradient.shape)
        if axis < new or (shape[axis - new] == 1 and size != 1)
    ]
    return gradient.sum(axis=tuple(repeated)).reshape(shape)
