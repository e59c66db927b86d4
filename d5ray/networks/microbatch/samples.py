"""Kinds of tensors when a batch is computed in parts: samples along an axis, or a whole of some kind"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.operators.nodes.node_context import Site
from d5ray.operators.tensors.tensor_descriptor import Dimension


@final
@dataclass(frozen=True)
class Samples:
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


Kind = Samples | Whole
Kinds = tuple[Kind, ...]
SHARED, SIZES, AVERAGE, SUM, UNKNOWN = (
    Whole.SHARED,
    Whole.SIZES,
    Whole.AVERAGE,
    Whole.SUM,
    Whole.UNKNOWN,
)


class MixesSamples(Exception):
    """An operator whose value for one sample depends on others, or where that is not known; says why.

    kind: what its outputs hold nevertheless.
    """

    def __init__(self, reason: str, kind: Kind | Kinds = UNKNOWN) -> None:
        super().__init__(reason)
        self.kind = kind


def shape_of(site: Site, slot: int) -> tuple[Dimension, ...]:
    """The shape of an input, as far as it is known. Raises `MixesSamples` where not even its axes are."""
    found = site.inputs[slot] if slot < len(site.inputs) else None
    if found is None or found.shape is None:
        raise MixesSamples(f"the shape of its input {slot}, {site.node.inputs[slot]!r}, is not known")
    return found.shape


def rank_of(site: Site, slot: int) -> int:
    """The number of axes of an input."""
    return len(shape_of(site, slot))


def output_shape(site: Site) -> tuple[Dimension, ...] | None:
    """The shape of the first output, None where it is not known."""
    found = site.outputs[0] if site.outputs else None
    return None if found is None else found.shape


def constant(site: Site, slot: int, what: str) -> tuple[int, ...] | None:
    """The integers of an input that never changes; None where it is left out."""
    if not site.has_input(slot):
        return None
    if slot not in site.constants:
        raise MixesSamples(f"its {what}, {site.node.inputs[slot]!r}, are computed")
    return tuple(int(each) for each in np.ravel(site.constants[slot]))


def the_axis(site: Site, kinds: Sequence[Kind]) -> int:
    """The axis of the samples of the first input, where no other input has any."""
    first = kinds[0]
    if not isinstance(first, Samples):
        raise MixesSamples(f"its input 0, {site.node.inputs[0]!r}, does not hold samples, and another does")
    check_shared(site, kinds, range(1, len(kinds)))
    return first.axis


def check_shared(site: Site, kinds: Sequence[Kind], slots: Sequence[int]) -> None:
    """Raise `MixesSamples` where one of these inputs depends on the samples."""
    for slot in slots:
        if slot < len(kinds) and kinds[slot] is not SHARED:
            raise MixesSamples(f"its input {slot}, {site.node.inputs[slot]!r}, depends on the samples")


def check_apart(axis: int, others: Sequence[int], rank: int, does: str) -> None:
    """Raise `MixesSamples` where an operator works along the axis of the samples."""
    if axis in [each % rank for each in others]:
        raise MixesSamples(f"it {does} axis {axis}, which is that of the samples")
