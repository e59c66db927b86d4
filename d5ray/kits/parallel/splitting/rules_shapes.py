"""Rules for operators that rearrange: constants that name sizes become those of a part"""

import numpy as np

from d5ray.kits.parallel.splitting.carrying import carried
from d5ray.kits.parallel.splitting.layouts import SHARED, SUMMAND, WHOLE, Divided
from d5ray.kits.parallel.splitting.rearranging import reshaped
from d5ray.kits.parallel.splitting.split_node import SplitNode
from d5ray.networks.axes.axis_map import CannotDivide, integers, output_shape


def flatten(place: SplitNode) -> None:
    """Flatten: the divided axis becomes a block of one of the two axes."""
    held = place.first()
    place.write(
        [place.read(0, held)], reshaped(place.shape(0), output_shape(place.context), held, place.parts)
    )


def reshape(place: SplitNode) -> None:
    """Reshape: where its constant names the divided axis's size, a part gets a constant with its own."""
    held, old, new = place.first(), place.shape(0), output_shape(place.context)
    made = reshaped(old, new, held, place.parts)
    wanted = integers(place.context, 1) or ()
    own = list(wanted)
    for axis, size in enumerate(wanted):
        if size == 0 and not place.context.attribute("allowzero", 0):
            if (axis == held.axis) != (axis == made.axis):  # it would copy what is not so long
                own[axis] = _number(new[axis]) // (place.parts if axis == made.axis else 1)
        elif size > 0 and axis == made.axis:
            own[axis] = size // place.parts
    inputs = [place.read(0, held), place.read(1, SHARED)]
    if own != list(wanted):
        inputs[1] = place.draft.constant(np.asarray(own, np.int64), f"{place.node.name}.shape_of_part")
    place.write(inputs, made)


def concat(place: SplitNode) -> None:
    """Concat: tensors of equal blocks, joined along the divided axis, are further blocks."""
    axis = place.axis("axis", 0, place.rank(0))
    if place.sums or all(held.axis != axis for held in place.divided.values()):
        carried(place)
        return
    if any(each.axis != axis for each in place.divided.values()) or len(place.divided) < len(place.slots):
        raise CannotDivide("its inputs are divided in different ways")
    sizes = {_number(place.shape(slot)[axis]) / each.blocks for slot, each in place.divided.items()}
    if len(sizes) != 1:
        raise CannotDivide(f"it puts parts of different lengths behind each other along axis {axis}")
    inputs = [place.read(slot, each) for slot, each in place.divided.items()]
    place.write(inputs, Divided(axis, sum(each.blocks for each in place.divided.values())))


def split(place: SplitNode) -> None:
    """Split: along the divided axis, if each output consists of whole blocks."""
    held, rank = place.first(), place.rank(0)
    axis = place.axis("axis", 0, rank)
    if axis != held.axis:
        carried(place)
        return
    block = _number(place.shape(0)[axis]) // held.blocks
    sizes = [_number(output_shape(place.context, each)[axis]) for each in range(len(place.node.outputs))]
    if any(size % block for size in sizes):
        raise CannotDivide(f"it takes axis {axis} apart otherwise than it is divided")
    inputs = [place.read(0, held)]
    if place.context.has_input(1):
        own = np.asarray([size // place.parts for size in sizes], np.int64)
        inputs.append(place.draft.constant(own, f"{place.node.name}.sizes_of_part"))
    place.write(inputs, *(Divided(axis, size // block) for size in sizes))


def expand(place: SplitNode) -> None:
    """Expand: where its constant names the divided axis's size, a part gets a constant with its own."""
    held, wanted = place.first(), list(integers(place.context, 1) or ())
    at = held.axis - place.rank(0) + len(wanted)
    made = Divided(held.axis + max(0, len(wanted) - place.rank(0)), held.blocks)
    inputs = [place.read(0, held), place.read(1, SHARED)]
    if at >= 0 and wanted[at] > 1:
        wanted[at] //= place.parts
        inputs[1] = place.draft.constant(np.asarray(wanted, np.int64), f"{place.node.name}.shape_of_part")
    place.write(inputs, made)


def sizes(place: SplitNode) -> None:
    """Shape and Size: the whole's, of what a part has."""
    held, node = place.layouts[0], place.node
    if not isinstance(held, Divided):
        place.write([place.read(0, SUMMAND)], WHOLE)
        return
    if node.type == "Size":
        times = np.asarray(place.parts, np.int64)
    else:
        rank = place.rank(0)
        low, high, _ = slice(node.attributes.get("start"), node.attributes.get("end")).indices(rank)
        times = np.ones(max(0, high - low), np.int64)
        if low <= held.axis < high:
            times[held.axis - low] = place.parts
    attributes = dict(node.attributes)
    own = place.draft.helper(node.type, [place.read(0, held)], f"{node.name}.of_part", **attributes)
    factor = place.draft.constant(times, f"{node.name}.parts")
    place.draft.write(type(node)("Mul", (own, factor), node.outputs, name=node.name), [WHOLE])


def gather_columns(place: SplitNode, blocks: int | None) -> None:
    """A table (…, columns): every part has its columns of all rows."""
    rank = place.rank(0)
    at = place.axis("axis", 0, rank)
    if at == rank - 1:
        raise CannotDivide("it chooses from the last axis, and has no columns beside it")
    held = Divided(rank - 1, blocks or 1)
    made = Divided(rank - 2 + place.rank(1), held.blocks)
    place.write([place.read(0, held), place.read(1, SHARED)], made)


def gather_rows(place: SplitNode) -> None:
    """Gather of rows: a part has its own and gives 0 for another's, a summand of what is chosen.

    An index that no part has gives 0.
    """
    draft, node, shape = place.draft, place.node, place.shape(0)
    at = place.axis("axis", 0, len(shape))
    whole, known = _number(shape[at]), place.context.inputs
    assert known[0] is not None and known[1] is not None
    rows, name, kind = whole // place.parts, node.name, known[1].dtype

    def number(value: int, what: str) -> str:
        return draft.constant(np.asarray(value, kind), f"{name}.{what}")

    zero, asked = number(0, "zero"), place.read(1, WHOLE)
    from_end = draft.helper("Add", [asked, number(whole, "rows")], f"{name}.from_end")
    negative = draft.helper("Less", [asked, zero], f"{name}.negative")
    index = draft.helper("Where", [negative, from_end, asked], f"{name}.index")
    own = draft.helper("Sub", [index, number(draft.index * rows, "begin")], f"{name}.own")
    low = draft.helper("GreaterOrEqual", [own, zero], f"{name}.not_before")
    high = draft.helper("Less", [own, number(rows, "rows_of_part")], f"{name}.not_behind")
    inside = draft.helper("And", [low, high], f"{name}.inside")
    safe = draft.helper("Where", [inside, own, zero], f"{name}.safe")
    table = place.read(0, Divided(at))
    chosen = draft.named(f"{name}.chosen")
    draft.nodes.append(type(node)("Gather", (table, safe), (chosen,), node.attributes, name))
    behind = range(place.rank(1), place.rank(1) + len(shape) - 1 - at)
    if len(behind):
        axes = draft.constant(np.asarray(behind, np.int64), f"{name}.axes")
        inside = draft.helper("Unsqueeze", [inside, axes], f"{name}.mask")
    nothing = draft.constant(np.zeros((), known[0].dtype), f"{name}.nothing")
    made = type(node)(
        "Where", (inside, chosen, nothing), node.outputs, name=draft.named(f"{name}.rows_chosen")
    )
    draft.write(made, [SUMMAND])


def _number(size: object) -> int:
    if not isinstance(size, int):
        raise CannotDivide("the size of an axis is open")
    return size
