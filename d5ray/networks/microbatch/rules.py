"""Rules by which operators pass samples on: along their axes, and what sums and sizes come to"""

import math
from collections.abc import Callable, Mapping, Sequence

from d5ray.networks.axes.axis_map import MEAN, SAMPLES, AxisMap, Label, integers, output_shape, shape_of
from d5ray.networks.axes.operators import AXES, axes_of
from d5ray.networks.microbatch.samples import (
    AVERAGE,
    SHARED,
    SIZES,
    SUM,
    UNKNOWN,
    Kind,
    Kinds,
    MixesSamples,
    SampleAxis,
)
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import Dimension
from d5ray.ops.catalogue import GROUPS

RESHAPING = ("Identity", "Neg", "Squeeze", "Unsqueeze", "Reshape", "Cast", "ReduceMean", "ReduceSum")
ADDING = ("Add", "Sub", "Sum", "Mean", "Concat")
SUMMING = ("Einsum", "ReduceSum")  # over samples, these give a sum that the parts' sums add up to
Rule = Callable[[NodeContext, Kinds], Kind | Kinds]


def carried(context: NodeContext, kinds: Kinds) -> Kinds:
    """The kinds of the outputs by the operator's axis map: one of its axes is that of the samples."""
    axes = axes_of(context)
    label = _of_samples(context, axes, kinds)
    for slot, held in enumerate(kinds):
        if isinstance(held, SampleAxis) or not context.has_input(slot):
            continue
        if axes.needs(context, slot, label):
            size = shape_of(context, slot)[axes.of_input(slot).index(label)]
            raise MixesSamples(
                f"its input {slot}, {context.node.inputs[slot]!r}, has {size} elements along the axis of the "
                "samples, and is no sample"
            )
        if held is not SHARED and not axes.broadcasts:
            raise _depends(context, slot)
    if axes.reduction is None or label in axes.outputs[0]:
        return tuple(SampleAxis(each.index(label)) if label in each else SHARED for each in axes.outputs)
    return (AVERAGE if axes.reduction == MEAN else SUM,)


def _of_samples(context: NodeContext, axes: AxisMap, kinds: Kinds) -> Label:
    """The label of the samples' axis, which must be one that samples may have."""
    labels = set()
    for slot, held in enumerate(kinds):
        if not isinstance(held, SampleAxis):
            continue
        if not axes.of_input(slot):
            raise _depends(context, slot)
        label = axes.label(slot, held.axis, "that of the samples")
        if label != SAMPLES and any(SAMPLES in each for each in axes.inputs):
            raise MixesSamples(f"its samples are along axis {held.axis}, and it takes them along another one")
        summed = axes.reduction not in (None, MEAN) and label not in axes.outputs[0]
        if summed and context.node.type not in SUMMING:
            raise MixesSamples(f"it {axes.does} axis {held.axis} of its input {slot}, that of the samples")
        labels.add(label)
    if len(labels) != 1:
        raise MixesSamples("its inputs hold samples along different axes")
    return labels.pop()


def max_pool(context: NodeContext, kinds: Kinds) -> Kinds:
    """MaxPool keeps samples as other pooling does; indices of the largest are those in the whole tensor."""
    if context.has_output(1):
        raise MixesSamples("its indices are counted from the first sample on", (SampleAxis(0), UNKNOWN))
    return carried(context, kinds)


def batch_normalization(context: NodeContext, kinds: Kinds) -> Kinds:
    """BatchNormalization with running statistics works value by value."""
    if context.attribute("training_mode", 0) and not context.evaluating:
        raise MixesSamples(
            "in training it normalizes with the mean and variance of the whole batch: freeze its statistics "
            "(frozen_statistics), or let a GroupNormalization stand in its place",
            (SampleAxis(0), UNKNOWN, UNKNOWN),
        )
    return carried(context, kinds)


def collective(context: NodeContext, kinds: Kinds) -> Kind:
    """An exchange of a split network: as what it reads, unless the parts divide the samples."""
    held = kinds[0]
    if isinstance(held, SampleAxis) and context.attribute("axis") == held.axis:
        raise MixesSamples("it divides the samples between the parts of a split network")
    return held


def reshape(context: NodeContext, kinds: Kinds) -> Kind:
    """The axes before that of the samples stay, and so does its size."""
    first = kinds[0]
    if not isinstance(first, SampleAxis) or kinds[1] not in (SHARED, SIZES):
        raise MixesSamples("its new shape depends on the values of samples")
    axis, old = first.axis, shape_of(context, 0)
    if 1 not in context.constants:
        new = output_shape(context)
        if not isinstance(old[axis], str) or new[: axis + 1] != old[: axis + 1]:
            raise MixesSamples("its new shape is computed, and whether it keeps the samples apart not known")
        return first
    wanted = integers(context, 1) or ()
    if len(wanted) > axis and _keeps(old, wanted, axis, bool(context.attribute("allowzero", 0))):
        return first
    raise MixesSamples(
        f"it makes {wanted} of {_listed(old)}, which fixes the number of samples or puts some of them "
        f"together: let axis {axis} be 0, which keeps it"
    )


def expand(context: NodeContext, kinds: Kinds) -> Kind:
    """Expand moves the axis of the samples to its place in the new shape.

    Raises MixesSamples where the new shape fixes the number of samples, or is not known.
    """
    first = kinds[0]
    if not isinstance(first, SampleAxis) or kinds[1] not in (SHARED, SIZES):
        raise MixesSamples("its new shape depends on the values of samples")
    old = shape_of(context, 0)
    if 1 in context.constants:
        wanted = integers(context, 1) or ()
        place = first.axis - len(old) + len(wanted)  # in the wanted shape; the last axes match
        if place < 0 or wanted[place] == 1:
            return SampleAxis(first.axis + max(0, len(wanted) - len(old)))
    else:
        new = output_shape(context)
        place = first.axis + len(new) - len(old)
        if isinstance(new[place], str) and new[place] == old[first.axis]:
            return SampleAxis(place)
    raise MixesSamples("its new shape fixes the number of samples, or it is not known")


def cast_like(context: NodeContext, kinds: Kinds) -> Kind:
    """CastLike keeps what its first input holds."""
    return kinds[0]


def loss(context: NodeContext, kinds: Kinds) -> Kinds:
    """The losses: scores and labels have their samples along axis 0."""
    if kinds[:2] != (SampleAxis(0), SampleAxis(0)):
        raise MixesSamples("its scores and labels do not both hold samples along axis 0")
    if kinds[2:] not in ((), (SHARED,)):
        raise _depends(context, 2)
    reduction = context.attribute("reduction", "mean")
    if reduction == "none":
        return (SampleAxis(0), SampleAxis(0))
    if reduction == "sum":
        return (SUM, SampleAxis(0))
    if context.has_input(2) or context.attribute("ignore_index") is not None:
        raise MixesSamples(
            "its mean is over the weights of the labels, of which parts of equal size have different ones: "
            "let its reduction be 'sum', or leave weights and ignore_index out"
        )
    return (AVERAGE, SampleAxis(0))


def after_reduction(context: NodeContext, kinds: Kinds) -> Kind:
    """The kind of a result of means or sums over samples: the operator must be linear in them."""
    reduced = {kind for kind in kinds if kind in (AVERAGE, SUM)}
    others = {kind for kind in kinds if kind not in (AVERAGE, SUM)}
    (kind, *more) = reduced
    mixed = MixesSamples(f"it computes with {kind.value.partition(':')[0]}, which parts do not know")
    if more or others - {SHARED}:
        raise mixed
    place = [number for number, each in enumerate(kinds) if each is kind]
    outputs = context.outputs[0] if context.outputs else None
    if context.node.domain:
        raise mixed
    match context.node.type:
        case each if each in RESHAPING and place == [0]:
            if each == "Cast" and (outputs is None or outputs.dtype.kind in "iub"):
                raise mixed
            return kind
        case "Mul" if len(place) == 1:
            return kind
        case "Div" if place == [0]:
            return kind
        case each if each in ADDING and (kind is AVERAGE or (not others and each != "Mean")):
            return kind
    raise mixed


def _depends(context: NodeContext, slot: int) -> MixesSamples:
    return MixesSamples(f"its input {slot}, {context.node.inputs[slot]!r}, depends on the samples")


def _keeps(old: Sequence[Dimension], wanted: Sequence[int], axis: int, zero_is_zero: bool) -> bool:
    """True if a new shape has the axis at its place with its size, whatever this is."""
    if zero_is_zero and 0 in wanted:
        return False
    known = [old[place] if size == 0 and place < len(old) else size for place, size in enumerate(wanted)]
    if list(known[:axis]) != list(old[:axis]) or any(size == -1 for size in known[:axis]):
        return False
    if wanted[axis] == 0:
        return True
    rest, before = known[axis + 1 :], old[axis + 1 :]
    if wanted[axis] != -1 or not all(isinstance(size, int) for size in (*rest, *before)):
        return False
    return math.prod(map(int, rest)) == math.prod(map(int, before))  # type: ignore[arg-type]


def _listed(shape: Sequence[Dimension]) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in shape)})"


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(AXES, carried),
    **dict.fromkeys(GROUPS["losses"], loss),
    "BatchNormalization": batch_normalization,
    "CastLike": cast_like,
    "Expand": expand,
    "MaxPool": max_pool,
    "Reshape": reshape,
}
