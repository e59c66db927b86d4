"""Kinds of tensors when a batch is computed in parts: samples along an axis, or a whole of some kind"""

import enum
from dataclasses import dataclass
from typing import final

from d5ray.networks.axes.axis_map import CannotDivide


@final
@dataclass(frozen=True)
class SampleAxis:
    """A tensor with a slice for every sample along this axis; a part of the batch makes its own alone."""

    axis: int


@final
class Whole(enum.Enum):
    """A tensor without an axis of samples."""

    SHARED = "the same for every part"
    SIZES = "computed from the number of samples"
    AVERAGE = "a mean over samples: that of the batch is the parts' mean, each weighted with its samples"
    SUM = "a sum over samples: that of the batch is the sum of the parts'"
    UNKNOWN = "made of several samples in another way"


Kind = SampleAxis | Whole
Kinds = tuple[Kind, ...]
SHARED, SIZES, AVERAGE, SUM, UNKNOWN = (
    Whole.SHARED,
    Whole.SIZES,
    Whole.AVERAGE,
    Whole.SUM,
    Whole.UNKNOWN,
)


class MixesSamples(CannotDivide):
    """An operator whose value for one sample depends on others, or where that is not known; says why.

    kind: what its outputs hold nevertheless.
    """

    def __init__(self, reason: str, kind: Kind | Kinds = UNKNOWN) -> None:
        super().__init__(reason)
        self.kind = kind
