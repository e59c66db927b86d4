"""Rules for operators that compute value by value or along some axes, on one part of what they read"""

from d5ray.networks.splitting.layouts import SHARED, SUMMAND, Divided, Layout, NeedsWhole
from d5ray.networks.splitting.place import Place
from d5ray.networks.splitting.rearranging import constant, numbers
from d5ray.operators import collectives as types

LINEAR = ("Add", "Sub", "Sum", "Identity", "Neg")  # of summands come summands
SUMMING = ("ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1")


def pointwise(place: Place) -> None:
    """Element by element, shapes broadcast: a parameter beside what is divided is divided too."""
    if place.sums:
        if place.node.type in LINEAR and all(held is SUMMAND for held in place.layouts):
            place.write([place.read(slot, SUMMAND) for slot in place.slots], SUMMAND)
            return
        raise NeedsWhole("it computes with sums over all parts")
    ranks = {slot: place.rank(slot) for slot in place.slots}
    rank = max(ranks.values())
    found = {Divided(held.axis + rank - ranks[slot], held.blocks) for slot, held in place.divided.items()}
    if len(found) != 1:
        raise NeedsWhole("its inputs are divided in different ways")
    (made,) = found
    wanted: dict[int, Layout] = {}
    for slot in place.slots:
        own = made.axis - (rank - ranks[slot])
        if own < 0 or place.shape(slot)[own] == 1:
            wanted[slot] = SHARED
        elif slot in place.divided or place.is_flexible(slot):
            wanted[slot] = Divided(own, made.blocks)
        else:
            raise NeedsWhole(f"its input {slot}, {place.node.inputs[slot]!r}, is the same on all parts")
    place.write([place.read(slot, wanted.get(slot, SHARED)) for slot in range(len(place.layouts))], made)


def like_first(place: Place) -> None:
    """CastLike: the divided axis stays."""
    place.along_first()


def dropout(place: Place) -> None:
    """The mask of the whole is drawn, and its part used: every part draws as the whole network does."""
    if place.site.has_output(1):
        raise NeedsWhole("its mask is asked for")
    held = place.first()
    changed = {"axis": held.axis, "blocks": held.blocks, "index": place.draft.index, "parts": place.parts}
    place.write(
        [place.read(0, held), *place.shared()],
        held,
        changed=changed,
        type=types.DROPOUT,
        domain=types.DOMAIN,
    )


def along_one_axis(place: Place) -> None:
    """Softmax and its like: each slice along one axis by itself, by default the last."""
    held, rank = place.first(), place.rank(0)
    place.check_apart(held, [place.axis("axis", -1, rank)], "works along")
    place.along_first()


def last_axes(place: Place) -> None:
    """LayerNormalization and RMSNormalization: over all axes from one on."""
    held, rank = place.first(), place.rank(0)
    place.check_apart(held, range(place.axis("axis", -1, rank), rank), "normalizes over")
    place.along_first()


def triangle(place: Place) -> None:
    """Trilu: the divided axis stays. Raises NeedsWhole where it is one of the last two."""
    held, rank = place.first(), place.rank(0)
    place.check_apart(held, (rank - 2, rank - 1), "cuts a triangle over")
    place.along_first()


def cumulative(place: Place) -> None:
    """CumSum: the divided axis stays. Raises NeedsWhole where it adds up along it."""
    held = place.first()
    place.check_apart(held, constant(place.site, 1, place.rank(0)), "adds up along")
    place.along_first()


def reduced(place: Place) -> None:
    """Reductions over some axes, or all; of sums over the divided axis every part has its summand."""
    held, rank = place.first(), place.rank(0)
    axes = numbers(place.site, 1)
    if not axes and place.site.attribute("noop_with_empty_axes", 0):
        return place.along_first()
    over = {each % rank for each in axes} if axes else set(range(rank))
    inputs = [place.read(0, held), *place.shared()]
    if held.axis not in over:
        place.write(inputs, _without(held, over, bool(place.site.attribute("keepdims", 1))))
        return None
    if place.node.type not in SUMMING:
        raise NeedsWhole(f"it reduces over axis {held.axis}, which is divided")
    if place.node.type == "ReduceMean":
        count = place.shape(0)[held.axis]
        if not isinstance(count, int):
            raise NeedsWhole(f"it takes the mean over axis {held.axis}, whose size is open")
        return _mean(place, inputs)
    place.write(inputs, SUMMAND)
    return None


def _mean(place: Place, inputs: list[str]) -> None:
    """A mean over equal parts: the parts' means, divided by their number, add up to it."""
    draft, node = place.draft, place.node
    known = place.site.inputs[0]
    assert known is not None
    share = draft.constant(known.dtype.type(1 / place.parts), f"{node.name}.share")
    scaled = draft.helper("Mul", [inputs[0], share], f"{node.name}.scaled")
    place.write([scaled, *inputs[1:]], SUMMAND)


def extreme(place: Place) -> None:
    """ArgMax and ArgMin: the divided axis stays. Raises NeedsWhole where it is the one searched."""
    held, rank = place.first(), place.rank(0)
    over = place.axis("axis", 0, rank)
    place.check_apart(held, [over], "looks along")
    made = _without(held, {over}, bool(place.site.attribute("keepdims", 1)))
    place.write([place.read(0, held)], made)


def _without(held: Divided, gone: set[int], kept: bool) -> Divided:
    return held if kept else Divided(held.axis - sum(each < held.axis for each in gone), held.blocks)
