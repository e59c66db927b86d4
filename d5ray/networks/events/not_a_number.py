"""RaiseAtNaN: ends a pass at the first operator that makes a NaN, and names it"""

from typing import Any, final

import numpy as np

from d5ray.errors import ValidationError
from d5ray.networks.events.event import FORWARD, GraphEvent, NetworkMoment, OperatorMoment


@final
class RaiseAtNaN(GraphEvent):
    """Raises `ValidationError` with the input, or the node and its tensor, that has the first NaN.

    infinities: whether an infinity counts too; forward alone, masks being made of them.
    """

    def __init__(self, infinities: bool = False) -> None:
        self.infinities = infinities

    def before_network(self, moment: NetworkMoment) -> None:
        for name, value in moment.values.items():
            if _wrong(value, self.infinities):
                raise ValidationError(f"the input {name!r} has {_what(value)}: nothing was run")

    def after_operator(self, moment: OperatorMoment) -> None:
        forward = moment.direction == FORWARD
        for place, name in enumerate(moment.node.outputs if forward else moment.node.inputs):
            found = moment.output(place)
            if name and found is not None and _wrong(found, forward and self.infinities):
                where = f"its output {name!r}" if forward else f"the gradient of its input {name!r}"
                raise ValidationError(
                    f"{moment.node}, node {moment.index} of the network, is the first that makes "
                    f"{_what(found)}, in its {moment.direction} pass: {where}"
                )


def _wrong(value: np.ndarray[Any, Any], infinities: bool) -> bool:
    if value.dtype.kind not in "fcV" and value.dtype.name != "bfloat16":
        return False
    return bool((~np.isfinite(value) if infinities else np.isnan(value)).any())


def _what(value: np.ndarray[Any, Any]) -> str:
    bad = ~np.isfinite(value)
    where = tuple(int(each) for each in np.argwhere(bad)[0])
    kind = "NaN" if np.isnan(value[where]) else "an infinity"
    return f"{kind} (the first of {int(bad.sum())} at {where} of shape {value.shape})"
