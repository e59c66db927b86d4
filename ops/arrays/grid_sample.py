"""GridSample: an image at the points of a grid"""

from collections.abc import Sequence
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.sampling import KERNELS, Sampling
from d5ray.ops.arrays.wide import WideOperator


def sampling_of(context: NodeContext) -> Sampling:
    """The attributes of the node, also in the words of its first version."""
    mode = context.attribute("mode", "linear").removeprefix("bi")
    if mode not in KERNELS:
        raise ConfigurationError(
            f"the node {context.node} has mode={mode!r}: it must be one of {list(KERNELS)}"
        )
    return Sampling(
        mode, context.attribute("padding_mode", "zeros"), bool(context.attribute("align_corners", 0))
    )


@final
class GridSample(WideOperator):
    """y(n, c, *places) = x(n, c, grid(n, *places)), the grid from −1, one edge of x, to 1, the other.

    x (n, c, *sizes), grid (n, *places, axes), its last coordinate that of the first axis (x, y: width,
    height). Of Spatial Transformer Networks (arXiv:1506.02025).
    """

    needs = 2

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, grid = inputs[0], inputs[1]
        assert x is not None and grid is not None
        sampling = sampling_of(context)
        y = sampling.forward(xp, x, _points(xp, sampling, x, grid))
        return (y.reshape(*x.shape[:2], *grid.shape[1:-1]),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), (x, grid) = gradients, inputs
        assert dy is not None and x is not None and grid is not None
        sampling = sampling_of(context)
        dx, dpoints = sampling.backward(xp, dy.reshape(*dy.shape[:2], -1), x, _points(xp, sampling, x, grid))
        dgrid = dpoints * _scale(xp, sampling, x)
        return dx, dgrid[..., ::-1].reshape(grid.shape)


def _points(xp: Any, sampling: Sampling, x: Array, grid: Array) -> Array:
    """(n, points, axes), counted in elements."""
    points = grid.reshape(grid.shape[0], -1, grid.shape[-1])[..., ::-1]
    return (points + 1) * _scale(xp, sampling, x) - (0 if sampling.align_corners else 0.5)


def _scale(xp: Any, sampling: Sampling, x: Array) -> Array:
    """Half the elements between −1 and 1, on each axis."""
    return (xp.asarray(x.shape[2:], dtype=x.dtype) - (1 if sampling.align_corners else 0)) / 2
