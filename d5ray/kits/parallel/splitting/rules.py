"""Rules by which operators pass on a division: of each that can be computed of parts"""

from collections.abc import Callable, Mapping

import numpy as np

from d5ray.kits.parallel.collectives import nodes as types
from d5ray.kits.parallel.splitting import rules_shapes
from d5ray.kits.parallel.splitting.carrying import carried, read
from d5ray.kits.parallel.splitting.layouts import SUMMAND, WHOLE, Divided
from d5ray.kits.parallel.splitting.split_node import SplitNode
from d5ray.networks.axes.axis_map import INNER, INPUTS, OUTPUTS, CannotDivide, Label
from d5ray.networks.axes.operators import AXES, POINTWISE, axes_of
from d5ray.ops.catalogue import GROUPS

Rule = Callable[[SplitNode], None]
LINEAR = ("Add", "Sub", "Sum", "Identity", "Neg")  # of summands come summands
# Computed whole: parts would draw other numbers, or nothing that is split has had them.
WHOLE_ALONE = {
    *GROUPS["recurrent"], "GatherElements", "MeanVarianceNormalization", "OneHot", "RandomNormalLike",
    "RandomUniformLike", "Resize", "ScatterElements",
}  # fmt: skip


def pointwise(place: SplitNode) -> None:
    """Element by element; of summands come summands where the operator is linear."""
    linear = place.node.type in LINEAR
    if linear and place.sums and all(held is SUMMAND for held in place.layouts):
        place.write([place.read(slot, SUMMAND) for slot in place.slots], SUMMAND)
    else:
        carried(place)


def dropout(place: SplitNode) -> None:
    """The mask of the whole is drawn, and its part used: every part draws as the whole network does."""
    if place.context.has_output(1):
        raise CannotDivide("its mask is asked for")
    held = place.first()
    changed = {"axis": held.axis, "blocks": held.blocks, "index": place.draft.index, "parts": place.parts}
    inputs = [place.read(0, held), *place.shared()]
    place.write(inputs, held, changed=changed, type=types.DROPOUT, domain=types.DOMAIN)


def batch_normalization(place: SplitNode) -> None:
    """Channels by themselves, with their statistics; samples only where statistics are frozen."""
    held = place.layouts[0]
    if isinstance(held, Divided) and held.axis == 0 and place.context.attribute("training_mode", 0):
        raise CannotDivide("in training it normalizes with the mean and variance of the whole batch")
    carried(place)


# What is not here is computed whole.
def product(place: SplitNode, label: Label | None = None, blocks: int = 1) -> None:
    """MatMul and Gemm, (…, rows, inner) by (…, inner, columns); label: the one that the plan divides."""
    if label == INNER and len(place.slots) > 2:
        _with_bias_behind(place, INNER)
    else:
        carried(place, label, blocks)


def convolution(place: SplitNode, label: Label | None = None) -> None:
    """Conv and ConvTranspose, (samples, inputs, …) by filters of inputs and outputs."""
    groups, held = int(place.context.attribute("group", 1)), place.layouts[0]
    across = label in (INPUTS, OUTPUTS) or (label is None and isinstance(held, Divided) and held.axis == 1)
    if groups > 1 and across:
        _in_groups(place, groups, label)
    elif label == INPUTS and place.context.has_input(2):
        _with_bias_behind(place, INPUTS, spatial=place.rank(0) - 2)
    else:
        carried(place, label)


def _with_bias_behind(place: SplitNode, label: Label, spatial: int = 0) -> None:
    """A sum over the parts, and then what is added to it, once."""
    draft, node, axes = place.draft, place.node, axes_of(place.context)
    inputs = [read(place, axes, slot, label, 1) for slot in (0, 1)]
    total = draft.summand(place.with_inputs(inputs, {}), f"{node.outputs[0]}.of_part")
    bias = place.read(2, WHOLE)
    if spatial:
        along = draft.constant(np.arange(1, spatial + 1), f"{node.name}.axes")
        bias = draft.helper("Unsqueeze", [bias, along], f"{node.name}.bias_by_channel")
    beta = float(place.context.attribute("beta", 1.0))
    if beta != 1:
        known = place.context.inputs[2]
        assert known is not None
        factor = draft.constant(known.dtype.type(beta), f"{node.name}.beta")
        bias = draft.helper("Mul", [bias, factor], f"{node.name}.bias")
    added = type(node)("Add", (total, bias), node.outputs, name=draft.named(f"{node.name}.with_bias"))
    draft.write(added, [WHOLE])


def _in_groups(place: SplitNode, groups: int, label: Label | None) -> None:
    """Every part has its groups: their channels, filters and biases."""
    if label == INPUTS:
        raise CannotDivide(f"its channels are in {groups} groups: divide it by ByOutputChannels()")
    held = place.layouts[0]
    if groups % place.parts or (label is None and held != Divided(1)):
        raise CannotDivide(f"it has {groups} groups, which {place.parts} parts do not divide")
    inputs = [place.read(0, Divided(1)), place.read(1, Divided(0)), place.read(2, Divided(0))]
    place.write(inputs, Divided(1), changed={"group": groups // place.parts})


RULES: Mapping[str, Rule] = {
    **{each: carried for each in AXES if each not in WHOLE_ALONE},
    **dict.fromkeys(POINTWISE, pointwise),
    **dict.fromkeys(("MatMul", "Gemm"), product),
    **dict.fromkeys(GROUPS["convolution"], convolution),
    **dict.fromkeys(("Shape", "Size"), rules_shapes.sizes),
    "BatchNormalization": batch_normalization,
    "Concat": rules_shapes.concat,
    "Dropout": dropout,
    "Expand": rules_shapes.expand,
    "Flatten": rules_shapes.flatten,
    "Reshape": rules_shapes.reshape,
    "Split": rules_shapes.split,
}
