"""Operators along one axis: ArgMax, ArgMin and CumSum"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients, WithoutGradient
from d5ray.operators.site import Site
from d5ray.ops.arrays.known import checked_axis, required_number
from d5ray.ops.arrays.precision import is_floating, narrowed, wide


@final
@dataclass(frozen=True)
class Extreme(WithoutGradient):
    """Where along an axis the extreme stands: the first place of several, or the last; int64.

    search is the name of the array module's function.
    """

    search: str

    def forward(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        (x,) = inputs
        assert x is not None
        axis = checked_axis(site, site.attribute("axis", 0), x.ndim)
        search = getattr(xp, self.search)
        if site.attribute("select_last_index", 0):
            place = x.shape[axis] - 1 - search(xp.flip(wide(x), axis), axis=axis)
        else:
            place = search(wide(x), axis=axis)
        if site.attribute("keepdims", 1):
            place = xp.expand_dims(place, axis)
        return (xp.asarray(place, dtype="int64"),)


@final
class CumulativeSum(ArrayOperator):
    """yᵢ = x₁ + … + xᵢ along an axis; without xᵢ itself (exclusive), or from the end (reverse)."""

    def forward(self, xp: Any, site: Site, inputs: Sequence[Array | None]) -> Arrays:
        x = inputs[0]
        assert x is not None
        axis = checked_axis(site, int(required_number(site, inputs, 1, "axis")), x.ndim)
        y = _summed(xp, wide(x), axis, site.attribute("exclusive", 0), site.attribute("reverse", 0))
        return (narrowed(xp, y, x),)

    def backward(
        self,
        xp: Any,
        site: Site,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), x = gradients, inputs[0]
        if dy is None or x is None or not is_floating(x):
            return (None, None)
        axis = checked_axis(site, int(required_number(site, inputs, 1, "axis")), x.ndim)
        exclusive, reverse = site.attribute("exclusive", 0), site.attribute("reverse", 0)
        return (narrowed(xp, _summed(xp, wide(dy), axis, exclusive, not reverse), x), None)


def _summed(xp: Any, x: Array, axis: int, exclusive: int, reverse: int) -> Array:
    x = xp.moveaxis(x, axis, -1)
    if reverse:
        x = x[..., ::-1]
    if exclusive:
        x = xp.concatenate([xp.zeros_like(x[..., :1]), x[..., :-1]], axis=-1)
    y = xp.cumsum(x, axis=-1, dtype=x.dtype)
    return xp.moveaxis(y[..., ::-1] if reverse else y, -1, axis)


OPERATORS: Mapping[str, ArrayOperator] = {
    "ArgMax": Extreme("argmax"),
    "ArgMin": Extreme("argmin"),
    "CumSum": CumulativeSum(),
}
