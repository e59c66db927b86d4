"""Operators that change the shape alone: Reshape, Flatten, Squeeze, Unsqueeze, Identity"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating
from d5ray.ops.arrays.known import checked_axis, numbers, required_numbers

Shape = tuple[int, ...]


class Reshaping(ArrayOperator):
    """A view of the first input; the gradient is a view of the output's."""

    @abstractmethod
    def shape(self, context: NodeContext, inputs: Sequence[Array | None], shape: Shape) -> Shape:
        """The new shape, of one whose first input has `shape`."""

    @final
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        shape = self.shape(context, inputs, x.shape)
        if math.prod(shape) != x.size:
            raise ConfigurationError(
                f"the node {context.node} makes {shape} of a tensor of shape {x.shape}: both must have "
                f"equally many elements, and they have {math.prod(shape)} and {x.size}"
            )
        return (x.reshape(shape),)

    @final
    def backward(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), x = gradients, inputs[0]
        has_gradient = dy is not None and x is not None and is_floating(x)
        return (dy.reshape(x.shape) if has_gradient else None, *[None] * (len(inputs) - 1))  # type: ignore[union-attr]


@final
class Identity(Reshaping):
    """The input itself."""

    def shape(self, context: NodeContext, inputs: Sequence[Array | None], shape: Shape) -> Shape:
        return shape


@final
class Flatten(Reshaping):
    """A matrix: the axes before `axis` in one, and the others in one."""

    def shape(self, context: NodeContext, inputs: Sequence[Array | None], shape: Shape) -> Shape:
        axis = context.attribute("axis", 1)
        if axis != len(shape):
            axis = checked_axis(context, axis, len(shape))
        return math.prod(shape[:axis]), math.prod(shape[axis:])


@final
class Reshape(Reshaping):
    """The input in another shape: 0 stands for the size that was there, unless allowed, -1 for the rest."""

    def shape(self, context: NodeContext, inputs: Sequence[Array | None], shape: Shape) -> Shape:
        asked = required_numbers(context, inputs, 1, "new shape")
        if not context.attribute("allowzero", 0):
            if 0 in asked[len(shape) :]:
                raise ConfigurationError(
                    f"the node {context.node} makes {tuple(asked)} of a tensor of shape {shape}: a 0 stands "
                    "for the size that the axis has, and there is no such axis"
                )
            asked = [size if size else shape[axis] for axis, size in enumerate(asked)]
        if -1 not in asked:
            return tuple(asked)
        given, whole = -math.prod(asked), math.prod(shape)
        rest = whole // given if given > 0 else 0
        return tuple(rest if size == -1 else size for size in asked)


@final
class Squeeze(Reshaping):
    """The input without the named axes of size 1, or all such."""

    def shape(self, context: NodeContext, inputs: Sequence[Array | None], shape: Shape) -> Shape:
        named = numbers(context, inputs, 1)
        if named is None:
            return tuple(size for size in shape if size != 1)
        axes = {checked_axis(context, axis, len(shape)) for axis in named}
        return tuple(size for axis, size in enumerate(shape) if axis not in axes)


@final
class Unsqueeze(Reshaping):
    """The input with new axes of size 1 at the named places of the output."""

    def shape(self, context: NodeContext, inputs: Sequence[Array | None], shape: Shape) -> Shape:
        named = required_numbers(context, inputs, 1, "axes")
        rank = len(shape) + len(named)
        axes = {checked_axis(context, axis, rank) for axis in named}
        if len(axes) != len(named):
            raise ConfigurationError(f"the node {context.node} names an axis twice, found {tuple(named)}")
        sizes = iter(shape)
        return tuple(1 if axis in axes else next(sizes) for axis in range(rank))


OPERATORS: Mapping[str, ArrayOperator] = {
    "Flatten": Flatten(),
    "Identity": Identity(),
    "Reshape": Reshape(),
    "Squeeze": Squeeze(),
    "Unsqueeze": Unsqueeze(),
}
