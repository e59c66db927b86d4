"""Rules for pooling, normalization and attention: channels, groups, heads and samples by themselves"""

from d5ray.networks.splitting.layouts import SHARED, Divided, NeedsWhole
from d5ray.networks.splitting.place import Place

# Inputs of an Attention (batch, heads, …): queries, keys, values, and what stands before these two.
HEADED, MASK, PAST = (0, 1, 2), 3, (4, 5)


def by_sample(place: Place) -> None:
    """Samples along axis 0 by themselves, everything else is shared."""
    held = place.first()
    if held.axis != 0:
        raise NeedsWhole(f"it works along axis {held.axis}, which is divided")
    place.along_first()


def pooling(place: Place) -> None:
    """Samples and channels by themselves."""
    held = place.first()
    if held.axis > 1:
        raise NeedsWhole(f"it works along axis {held.axis}, which is divided")
    if place.site.has_output(1):
        raise NeedsWhole("its indices are those in the whole tensor")
    place.along_first()


def batch_normalization(place: Place) -> None:
    """Channels by themselves, with their statistics; samples only where statistics are frozen."""
    held = place.first()
    training = bool(place.site.attribute("training_mode", 0))
    if held.axis == 1:
        own = Divided(0, held.blocks)
        inputs = [place.read(0, held), *(place.read(slot, own) for slot in range(1, 5))]
        place.write(inputs, *(held, own, own)[: len(place.node.outputs)])
        return
    if training:
        raise NeedsWhole("in training it normalizes with the mean and variance of the whole batch")
    place.along_first()


def by_channel(place: Place) -> None:
    """InstanceNormalization and GroupNormalization: (samples, channels, …), with values for every channel."""
    held = place.first()
    if held.axis > 1:
        raise NeedsWhole(f"it normalizes over axis {held.axis}, which is divided")
    if held.axis == 0:
        place.along_first()
        return
    changed = {}
    if place.node.type == "GroupNormalization":
        groups = int(place.site.required("num_groups"))
        if held.blocks > 1 or groups % place.parts:
            raise NeedsWhole(f"it has {groups} groups, which {place.parts} parts do not divide")
        changed = {"num_groups": groups // place.parts}
    own = Divided(0, held.blocks)
    place.write([place.read(0, held), place.read(1, own), place.read(2, own)], held, changed=changed)


def attention(place: Place, planned: bool = False) -> None:
    """Softmax(Q Kᵀ) V, head by head: a part has its heads of queries, and of the keys and values they read.

    (batch, heads, positions, size), or (batch, positions, heads · size), where heads are attributes.
    """
    flat = place.rank(0) == 3
    axis = 2 if flat else 1
    held = place.layouts[0]
    if not planned and held == Divided(0):
        _attention_by_samples(place)
        return
    if not planned and any(place.layouts[slot] != Divided(axis) for slot in HEADED):
        raise NeedsWhole("not all of its queries, keys and values are divided by heads")
    changed = {}
    for name, slot in (("q_num_heads", 0), ("kv_num_heads", 1)):
        heads = int(place.site.required(name)) if flat else place.shape(slot)[1]
        if not isinstance(heads, int) or heads % place.parts:
            raise NeedsWhole(f"it has {heads} heads, which {place.parts} parts do not divide")
        if flat:
            changed[name] = heads // place.parts
    inputs = [place.read(slot, Divided(axis)) for slot in HEADED]
    if place.site.has_input(MASK):
        mask = place.shape(MASK)
        by_head = len(mask) == 4 and mask[1] != 1
        inputs.append(place.read(MASK, Divided(1) if by_head else SHARED))
    else:
        inputs.append("")
    inputs += [place.read(slot, Divided(1)) for slot in PAST]
    inputs.append(place.read(6, SHARED))
    made = [Divided(axis), Divided(1), Divided(1), Divided(1)]
    place.write(inputs, *made[: len(place.node.outputs)], changed=changed)


def _attention_by_samples(place: Place) -> None:
    own = Divided(0)
    for slot in place.slots:
        shape = place.shape(slot)
        shared = slot == MASK and (len(shape) < 4 or shape[0] == 1)
        if not shared and place.layouts[slot] != own:
            raise NeedsWhole("not all of its inputs are divided by samples")
    layouts = [SHARED if held != own else own for held in place.layouts]
    place.write([place.read(slot, each) for slot, each in enumerate(layouts)], own)


def rotary_embedding(place: Place) -> None:
    """Heads or samples by themselves."""
    held, flat = place.first(), place.rank(0) == 3
    if held.axis == (2 if flat else 1):
        if not flat:
            place.along_first()
            return
        heads = int(place.site.attribute("num_heads", 0))
        if held.blocks > 1 or not heads or heads % place.parts:
            raise NeedsWhole(f"it has {heads} heads, which {place.parts} parts do not divide")
        place.along_first({"num_heads": heads // place.parts})
        return
    by_sample_tables = [slot for slot in place.slots if slot and place.rank(slot) == (3 if slot < 3 else 2)]
    if held.axis == 0 and not by_sample_tables:
        place.along_first()
        return
    raise NeedsWhole("its angles are those of every sample and position")
