"""AxisMap: which axes of a node's inputs and outputs are one and the same"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import Dimension

Label = str | int
Labels = tuple[Label | None, ...]
SAMPLES, CHANNELS, HEADS = "samples", "channels", "heads"
ROWS, INNER, COLUMNS = "rows", "inner", "columns"
INPUTS, OUTPUTS = "inputs", "outputs"  # channels of a convolution
SUM, MEAN, OTHER = "sum", "mean", "other"
FAR = 2**31 - 1  # the end of a slice, from there on the end of the axis


class CannotDivide(Exception):
    """An operator that cannot be computed of parts of what it reads, or where that is not known; says why."""


@final
@dataclass(frozen=True)
class AxisMap:
    """A label for each axis; axes of one label are one axis, so that a part of it can be computed alone.

    inputs, outputs: an axis that the operator works along, and cannot be divided, has no label. An input that
    is left out at the end, or is (), is needed whole for every part. does: what the operator does along the
    axes without a label, for errors. reduction: what becomes of a label that an output lacks, `SUM`, `MEAN`
    or `OTHER`; None where the output does not depend on that axis. broadcasts: inputs that have one element
    along an axis may stand beside others with more.
    """

    inputs: tuple[Labels, ...]
    outputs: tuple[Labels, ...]
    does: str = "works along"
    reduction: str | None = None
    broadcasts: bool = False

    def of_input(self, slot: int) -> Labels:
        """The labels of an input's axes, () where it is needed whole."""
        return self.inputs[slot] if slot < len(self.inputs) else ()

    def label(self, slot: int, axis: int, which: str) -> Label:
        """The label of an input's axis. Raises `CannotDivide` where it has none, with `which` axis it is."""
        found = self.inputs[slot][axis]
        if found is None:
            raise CannotDivide(f"it {self.does} axis {axis}, which is {which}")
        return found

    def needs(self, context: NodeContext, slot: int, label: Label) -> bool:
        """True if a part needs its own of this input: the input has the axis, and not one element for all."""
        labels = self.of_input(slot)
        return label in labels and not (self.broadcasts and shape_of(context, slot)[labels.index(label)] == 1)


def kept(context: NodeContext, blocked: Sequence[int] = (), does: str = "works along") -> AxisMap:
    """The axes of input 0 stay where they are, and what the operator works along is blocked."""
    rank = rank_of(context, 0)
    gone = {each % rank for each in blocked}
    labels = tuple(None if axis in gone else axis for axis in range(rank))
    return AxisMap((labels,), (labels,) * len(context.node.outputs), does)


def shape_of(context: NodeContext, slot: int) -> tuple[Dimension, ...]:
    """The shape of an input, as far as it is known. Raises `CannotDivide` where not even its axes are."""
    found = context.inputs[slot] if slot < len(context.inputs) else None
    if found is None or found.shape is None:
        raise CannotDivide(f"the shape of its input {slot}, {context.node.inputs[slot]!r}, is not known")
    return found.shape


def rank_of(context: NodeContext, slot: int) -> int:
    """The number of axes of an input."""
    return len(shape_of(context, slot))


def output_shape(context: NodeContext, place: int = 0) -> tuple[Dimension, ...]:
    """The shape of an output. Raises `CannotDivide` where it is not known."""
    found = context.outputs[place] if place < len(context.outputs) else None
    if found is None or found.shape is None:
        raise CannotDivide(f"the shape of its output {context.node.outputs[place]!r} is not known")
    return found.shape


def integers(context: NodeContext, slot: int) -> tuple[int, ...] | None:
    """The integers of an input that never changes; None where it is left out."""
    if not context.has_input(slot):
        return None
    if slot not in context.constants:
        raise CannotDivide(f"its input {slot}, {context.node.inputs[slot]!r}, is computed")
    return tuple(int(each) for each in np.ravel(context.constants[slot]))
