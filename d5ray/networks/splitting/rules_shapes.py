"""Rules for operators that rearrange: constants that name sizes become those of a part"""

import numpy as np

from d5ray.networks.splitting.layouts import SHARED, SUMMAND, WHOLE, Divided, NeedsWhole
from d5ray.networks.splitting.place import Place
from d5ray.networks.splitting.rearranging import (
    check_not_cut,
    constant,
    kept_axes,
    numbers,
    order_of,
    output_shape,
    reshaped,
    squeezed,
)


def flatten(place: Place) -> None:
    """Flatten: the divided axis becomes a block of one of the two axes."""
    held = place.first()
    place.write([place.read(0, held)], reshaped(place.shape(0), output_shape(place.site), held, place.parts))


def reshape(place: Place) -> None:
    """Reshape: where its constant names the divided axis's size, a part gets a constant with its own."""
    held, old, new = place.first(), place.shape(0), output_shape(place.site)
    made = reshaped(old, new, held, place.parts)
    wanted = numbers(place.site, 1) or ()
    own = list(wanted)
    for axis, size in enumerate(wanted):
        if size == 0 and not place.site.attribute("allowzero", 0):
            if (axis == held.axis) != (axis == made.axis):  # it would copy what is not so long
                own[axis] = _number(new[axis]) // (place.parts if axis == made.axis else 1)
        elif size > 0 and axis == made.axis:
            own[axis] = size // place.parts
    inputs = [place.read(0, held), place.read(1, SHARED)]
    if own != list(wanted):
        inputs[1] = place.draft.constant(np.asarray(own, np.int64), f"{place.node.name}.shape_of_part")
    place.write(inputs, made)


def transpose(place: Place) -> None:
    """Transpose: the divided axis goes to its new position."""
    held = place.first()
    place.write([place.read(0, held)], Divided(order_of(place.site).index(held.axis), held.blocks))


def squeeze(place: Place) -> None:
    """Squeeze: the divided axis moves forward. Raises NeedsWhole where it is the one taken out."""
    held, kept = place.first(), kept_axes(place.rank(0), squeezed(place.site))
    if held.axis not in kept:
        raise NeedsWhole(f"it takes out axis {held.axis}, which is divided")
    place.write([place.read(0, held), *place.shared()], Divided(kept.index(held.axis), held.blocks))


def unsqueeze(place: Place) -> None:
    """Unsqueeze: the divided axis moves back by the axes put in before it."""
    held = place.first()
    rank = place.rank(0) + len(numbers(place.site, 1) or ())
    kept = kept_axes(rank, constant(place.site, 1, rank))
    place.write([place.read(0, held), *place.shared()], Divided(kept[held.axis], held.blocks))


def concat(place: Place) -> None:
    """Concat: tensors of equal blocks, joined along the divided axis, are further blocks."""
    axis = place.axis("axis", 0, place.rank(0))
    if place.sums:
        raise NeedsWhole("it computes with sums over all parts")
    held = next(iter(place.divided.values()))
    if axis != held.axis:
        for slot in place.slots:
            if place.layouts[slot] != held and not place.is_flexible(slot):
                raise NeedsWhole("its inputs are divided in different ways")
        place.write([place.read(slot, held) for slot in place.slots], held)
        return
    if any(each.axis != axis for each in place.divided.values()) or len(place.divided) < len(place.slots):
        raise NeedsWhole("its inputs are divided in different ways")
    sizes = {_number(place.shape(slot)[axis]) / each.blocks for slot, each in place.divided.items()}
    if len(sizes) != 1:
        raise NeedsWhole(f"it puts parts of different lengths behind each other along axis {axis}")
    inputs = [place.read(slot, each) for slot, each in place.divided.items()]
    place.write(inputs, Divided(axis, sum(each.blocks for each in place.divided.values())))


def split(place: Place) -> None:
    """Split: along the divided axis, if each output consists of whole blocks."""
    held, rank = place.first(), place.rank(0)
    axis = place.axis("axis", 0, rank)
    if axis != held.axis:
        place.along_first()
        return
    block = _number(place.shape(0)[axis]) // held.blocks
    sizes = [_number(output_shape(place.site, each)[axis]) for each in range(len(place.node.outputs))]
    if any(size % block for size in sizes):
        raise NeedsWhole(f"it takes axis {axis} apart otherwise than it is divided")
    inputs = [place.read(0, held)]
    if place.site.has_input(1):
        own = np.asarray([size // place.parts for size in sizes], np.int64)
        inputs.append(place.draft.constant(own, f"{place.node.name}.sizes_of_part"))
    place.write(inputs, *(Divided(axis, size // block) for size in sizes))


def slices(place: Place) -> None:
    """Slice: the divided axis stays. Raises NeedsWhole where the node cuts along it."""
    check_not_cut(place.site, place.first().axis)
    place.along_first()


def pad(place: Place) -> None:
    """Pad: the divided axis stays. Raises NeedsWhole where the node adds to it."""
    held, rank = place.first(), place.rank(0)
    widths = numbers(place.site, 1) or ()
    axes = constant(place.site, 3, rank) or tuple(range(rank))
    padded = [at for at, *pair in zip(axes, widths, widths[len(axes) :], strict=False) if any(pair)]
    place.check_apart(held, padded, "adds to")
    place.along_first()


def expand(place: Place) -> None:
    """Expand: where its constant names the divided axis's size, a part gets a constant with its own."""
    held, wanted = place.first(), list(numbers(place.site, 1) or ())
    at = held.axis - place.rank(0) + len(wanted)
    made = Divided(held.axis + max(0, len(wanted) - place.rank(0)), held.blocks)
    inputs = [place.read(0, held), place.read(1, SHARED)]
    if at >= 0 and wanted[at] > 1:
        wanted[at] //= place.parts
        inputs[1] = place.draft.constant(np.asarray(wanted, np.int64), f"{place.node.name}.shape_of_part")
    place.write(inputs, made)


def tile(place: Place) -> None:
    """Tile: the divided axis stays. Raises NeedsWhole where the node repeats along it."""
    held = place.first()
    if (numbers(place.site, 1) or ())[held.axis] != 1:
        raise NeedsWhole(f"it repeats along axis {held.axis}, which is divided")
    place.along_first()


def sizes(place: Place) -> None:
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


def gather(place: Place) -> None:
    """Gather: along an axis that is not divided, or from what all parts have by divided indices."""
    rank = place.rank(0)
    at = place.axis("axis", 0, rank)
    data, indices = place.layouts[0], place.layouts[1]
    if isinstance(data, Divided) and not isinstance(indices, Divided):
        place.check_apart(data, [at], "chooses from")
        axis = data.axis if data.axis < at else data.axis + place.rank(1) - 1
        place.write([place.read(0, data), place.read(1, SHARED)], Divided(axis, data.blocks))
    elif isinstance(indices, Divided) and not isinstance(data, Divided):
        made = Divided(at + indices.axis, indices.blocks)
        place.write([place.read(0, SHARED), place.read(1, indices)], made)
    else:
        raise NeedsWhole("it chooses from parts by parts")


def gather_columns(place: Place, blocks: int | None) -> None:
    """A table (…, columns): every part has its columns of all rows."""
    rank = place.rank(0)
    at = place.axis("axis", 0, rank)
    if at == rank - 1:
        raise NeedsWhole("it chooses from the last axis, and has no columns beside it")
    held = Divided(rank - 1, blocks or 1)
    made = Divided(rank - 2 + place.rank(1), held.blocks)
    place.write([place.read(0, held), place.read(1, SHARED)], made)


def gather_rows(place: Place) -> None:
    """Gather of rows: a part has its own and gives 0 for another's, a summand of what is chosen.

    An index that no part has gives 0.
    """
    draft, node, shape = place.draft, place.node, place.shape(0)
    at = place.axis("axis", 0, len(shape))
    whole, known = _number(shape[at]), place.site.inputs
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
        raise NeedsWhole("the size of an axis is open")
    return size
