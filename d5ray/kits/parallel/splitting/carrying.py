"""carried: an operator on parts of what it reads, by its axis map; sums over what is divided are summands"""

from collections.abc import Mapping
from typing import Any

from d5ray.kits.parallel.splitting.layouts import SHARED, SUMMAND, WHOLE, Divided
from d5ray.kits.parallel.splitting.split_node import SplitNode
from d5ray.networks.axes.axis_map import CHANNELS, HEADS, MEAN, OTHER, SAMPLES, AxisMap, CannotDivide, Label
from d5ray.networks.axes.operators import POINTWISE, axes_of

# From this input on, parameters and constants are divided where what they stand beside is.
FOLLOWING = {**dict.fromkeys((*POINTWISE, "Concat"), 0), "MatMul": 2, "Gemm": 2}
# Inputs that are divided by channels or heads where those before them are, whatever they are.
BESIDE: Mapping[str, tuple[int, ...]] = {
    "Attention": (3, 4, 5),
    "BatchNormalization": (1, 2, 3, 4),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
}
# Attributes that count channels' groups or heads, in the order of the inputs that have them.
COUNTS: Mapping[str, tuple[str, ...]] = {
    "Attention": ("q_num_heads", "kv_num_heads"),
    "GroupNormalization": ("num_groups",),
    "RotaryEmbedding": ("num_heads",),
}


def carried(place: SplitNode, label: Label | None = None, blocks: int = 1) -> None:
    """Divide what has the label, leave the rest whole; without a label, that of what is divided already."""
    axes = axes_of(place.context)
    if label is None:
        label, blocks = _divided(place, axes)
    changed = _own_counts(place, label, blocks)
    inputs = [read(place, axes, slot, label, blocks) for slot in range(len(place.node.inputs))]
    lacking = [each for each in axes.outputs if label not in each]
    if lacking and axes.reduction == OTHER:
        raise CannotDivide(f"it {axes.does} an axis, which is divided")
    if lacking and axes.reduction == MEAN:
        inputs[0] = _scaled(place, inputs[0], axes.inputs[0].index(label))
    without = WHOLE if axes.reduction is None else SUMMAND
    made = [Divided(each.index(label), blocks) if label in each else without for each in axes.outputs]
    place.write(inputs, *made, changed=changed)


def read(place: SplitNode, axes: AxisMap, slot: int, label: Label, blocks: int) -> str:
    """The name of an input as the part needs it."""
    if axes.needs(place.context, slot, label):
        return place.read(slot, Divided(axes.of_input(slot).index(label), blocks))
    return place.read(slot, SHARED)


def _divided(place: SplitNode, axes: AxisMap) -> tuple[Label, int]:
    """The label of the axis along which the inputs are divided. Raises `CannotDivide`."""
    if place.sums:
        raise CannotDivide("it computes with sums over all parts")
    found = set()
    for slot, held in place.divided.items():
        if axes.of_input(slot):
            found.add((axes.label(slot, held.axis, "divided"), held.blocks))
        elif not place.is_flexible(slot):
            raise CannotDivide(f"its input {slot}, {place.node.inputs[slot]!r}, is divided too")
    if len(found) != 1:
        raise CannotDivide("its inputs are divided in different ways")
    ((label, blocks),) = found
    for slot in place.slots:
        if (
            axes.needs(place.context, slot, label)
            and slot not in place.divided
            and not _follows(place, slot, label)
        ):
            raise CannotDivide(f"its input {slot}, {place.node.inputs[slot]!r}, is the same on all parts")
    return label, blocks


def _follows(place: SplitNode, slot: int, label: Label) -> bool:
    """True if the input is divided where another is."""
    kind = place.node.type
    if label != SAMPLES and slot in BESIDE.get(kind, ()):
        return True
    return kind in FOLLOWING and slot >= FOLLOWING[kind] and place.is_flexible(slot)


def _own_counts(place: SplitNode, label: Label, blocks: int) -> dict[str, Any]:
    """The attributes that count heads or groups, as a part has them. Raises `CannotDivide`."""
    kind, changed = place.node.type, {}
    if label not in (CHANNELS, HEADS) or kind not in COUNTS:
        return {}
    counted = kind == "GroupNormalization" or place.rank(0) == 3  # else heads are an axis
    if kind == "RotaryEmbedding" and not counted:
        return {}
    for slot, name in enumerate(COUNTS[kind]):
        count = int(place.context.attribute(name, 0)) if counted else place.shape(slot)[1]
        if blocks > 1 or not isinstance(count, int) or not count or count % place.parts:
            what = name.removeprefix("num_") if kind == "GroupNormalization" else "heads"
            raise CannotDivide(f"it has {count} {what}, which {place.parts} parts do not divide")
        if counted:
            changed[name] = count // place.parts
    return changed


def _scaled(place: SplitNode, own: str, axis: int) -> str:
    """What a mean is taken of, divided by the number of equal parts, whose means then add up to it."""
    if not isinstance(place.shape(0)[axis], int):
        raise CannotDivide(f"it takes the mean over axis {axis}, whose size is open")
    known, name = place.context.inputs[0], place.node.name
    assert known is not None
    share = place.draft.constant(known.dtype.type(1 / place.parts), f"{name}.share")
    return place.draft.helper("Mul", [own, share], f"{name}.scaled")
