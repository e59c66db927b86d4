"""Rules by which operators pass on a division: of each that can be computed of parts"""

from collections.abc import Callable, Mapping

from d5ray.networks.axes.axis_map import CannotDivide
from d5ray.networks.axes.operators import AXES, POINTWISE
from d5ray.networks.splitting import rules_products, rules_shapes
from d5ray.networks.splitting.carrying import carried
from d5ray.networks.splitting.layouts import SUMMAND, Divided
from d5ray.networks.splitting.split_node import SplitNode
from d5ray.operators import collectives as types
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
RULES: Mapping[str, Rule] = {
    **{each: carried for each in AXES if each not in WHOLE_ALONE},
    **dict.fromkeys(POINTWISE, pointwise),
    **dict.fromkeys(("MatMul", "Gemm"), rules_products.product),
    **dict.fromkeys(GROUPS["convolution"], rules_products.convolution),
    **dict.fromkeys(("Shape", "Size"), rules_shapes.sizes),
    "BatchNormalization": batch_normalization,
    "Concat": rules_shapes.concat,
    "Dropout": dropout,
    "Expand": rules_shapes.expand,
    "Flatten": rules_shapes.flatten,
    "Reshape": rules_shapes.reshape,
    "Split": rules_shapes.split,
}
