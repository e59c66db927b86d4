"""Cast, CastLike and BitCast"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients, WithoutGradient
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.element_types import is_floating, onnx_type
from d5ray.ops.arrays.formula import silently
from d5ray.ops.arrays.narrow import cast_to


class Casting(ArrayOperator):
    """The nearest numbers of another type; the fraction is cut off where it has none (see `cast_to`)."""

    @abstractmethod
    def type(self, context: NodeContext, inputs: Sequence[Array | None]) -> Any:
        """The type that the node casts to."""

    @final
    @silently
    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        saturate, round_mode = bool(context.attribute("saturate", 1)), context.attribute("round_mode", "up")
        return (cast_to(xp, x, self.type(context, inputs), saturate, round_mode),)

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
        (dy,), x = gradients, inputs[0]
        rest = [None] * (len(inputs) - 1)
        if dy is None or x is None or not is_floating(x) or not is_floating(outputs[0]):
            return (None, *rest)
        return (cast_to(xp, dy, x.dtype), *rest)


@final
class Cast(Casting):
    """The input in the type that the node names."""

    def type(self, context: NodeContext, inputs: Sequence[Array | None]) -> Any:
        return onnx_type(context, context.required("to"))


@final
class CastLike(Casting):
    """The input in the type of the second input."""

    def type(self, context: NodeContext, inputs: Sequence[Array | None]) -> Any:
        return inputs[1].dtype  # type: ignore[union-attr]  # it is required


@final
class BitCast(WithoutGradient):
    """The input's bits, as numbers of another type of the same width."""

    def forward(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, kind = inputs[0], onnx_type(context, context.required("to"))
        assert x is not None
        if x.dtype.itemsize != kind.itemsize:
            raise ConfigurationError(
                f"the node {context.node} takes the bits of {x.dtype} for {kind}: both must be of one width"
            )
        return (xp.ascontiguousarray(x).view(kind).reshape(x.shape).copy(),)


OPERATORS: Mapping[str, ArrayOperator] = {"BitCast": BitCast(), "Cast": Cast(), "CastLike": CastLike()}
