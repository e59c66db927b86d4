"""Rules for products and convolutions: every axis has a letter, and one letter is divided"""

from collections.abc import Sequence

import numpy as np

from d5ray.networks.splitting.layouts import SHARED, SUMMAND, WHOLE, Divided, NeedsWhole
from d5ray.networks.splitting.place import Place

Letters = Sequence[str | None]  # of the axes of a tensor; None for one that is repeated, or cannot be divided
ROWS, INNER, COLUMNS = "rows", "inner", "columns"
SAMPLES, INPUTS, OUTPUTS = "samples", "inputs", "outputs"


def product(place: Place, letter: str | None = None, blocks: int = 1) -> None:
    """MatMul and Gemm, (…, rows, inner) by (…, inner, columns); letter: the one that the plan divides."""
    terms, made = gemm_letters(place) if place.node.type == "Gemm" else matmul_letters(place)
    if letter == INNER and len(terms) > 2:
        _with_bias_behind(place, terms[:2], blocks)
        return
    _contracted(place, terms, made, letter, blocks, may_follow=2)


def einsum(place: Place) -> None:
    """Einsum: one letter is divided wherever it stands."""
    equation = str(place.site.required("equation")).replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    if "." in equation:
        raise NeedsWhole(f"its equation {equation!r} does not name all axes")
    if not arrow:
        letters = inputs.replace(",", "")
        output = "".join(sorted({each for each in letters if letters.count(each) == 1}))
    terms = [list(term) for term in inputs.split(",")]
    if any(len(set(term)) < len(term) for term in terms):
        raise NeedsWhole(f"its equation {equation!r} has a letter twice in one term")
    _contracted(place, terms, list(output), None, 1)


def convolution(place: Place, letter: str | None = None) -> None:
    """Conv and ConvTranspose, (samples, inputs, …) by filters of inputs and outputs."""
    groups, rank = int(place.site.attribute("group", 1)), place.rank(0)
    held = place.layouts[0]
    across = letter in (INPUTS, OUTPUTS) or (letter is None and isinstance(held, Divided) and held.axis == 1)
    if groups > 1 and across:
        _in_groups(place, groups, letter)
        return
    filters = [OUTPUTS, INPUTS] if place.node.type == "Conv" else [INPUTS, OUTPUTS]
    rest: list[None] = [None] * (rank - 2)
    terms: list[Letters] = [[SAMPLES, INPUTS, *rest], [*filters, *rest], [OUTPUTS]]
    if letter == INPUTS and place.site.has_input(2):
        _with_bias_behind(place, terms[:2], 1, spatial=rank - 2)
        return
    _contracted(place, terms[: len(place.slots)], [SAMPLES, OUTPUTS, *rest], letter, 1)


def matmul_letters(place: Place) -> tuple[list[Letters], Letters]:
    """Stacked matrices have a letter for each axis of the stack, counted from the last."""
    shapes = place.shape(0), place.shape(1)
    if min(map(len, shapes)) < 2:
        raise NeedsWhole("it multiplies vectors")
    terms: list[Letters] = []
    for shape, own in zip(shapes, ((ROWS, INNER), (INNER, COLUMNS)), strict=True):
        stack = [None if size == 1 else str(len(shape) - axis) for axis, size in enumerate(shape[:-2])]
        terms.append([*stack, *own])
    most = max(map(len, shapes))
    return terms, [*(str(most - axis) for axis in range(most - 2)), ROWS, COLUMNS]


def gemm_letters(place: Place) -> tuple[list[Letters], Letters]:
    """The letters of the axes of Gemm's inputs, transposed where the node says so, and of its output."""
    a, b = [ROWS, INNER], [INNER, COLUMNS]
    terms: list[Letters] = [
        a[::-1] if place.site.attribute("transA", 0) else a,
        b[::-1] if place.site.attribute("transB", 0) else b,
    ]
    if place.site.has_input(2):
        shape = place.shape(2)
        letters = [ROWS, COLUMNS][2 - len(shape) :]
        terms.append([None if size == 1 else each for size, each in zip(shape, letters, strict=True)])
    return terms, [ROWS, COLUMNS]


def _contracted(
    place: Place,
    terms: Sequence[Letters],
    made: Letters,
    letter: str | None,
    blocks: int,
    may_follow: int = 3,
) -> None:
    """Divide what has the letter, leave the rest whole; where the letter is summed over, parts give summands.

    Where the plan names no letter, it is that of the inputs, all of which must have it divided already;
    those from `may_follow` on, such as a bias, are divided if they are parameters.
    """
    if place.sums and letter is None:
        raise NeedsWhole("it computes with sums over all parts")
    if letter is None:
        found = {(terms[slot][held.axis], held.blocks) for slot, held in place.divided.items()}
        if len(found) != 1:
            raise NeedsWhole("its inputs are divided along different axes")
        ((letter, blocks),) = found
        for slot, term in enumerate(terms):
            follows = slot >= may_follow and place.is_flexible(slot)
            if letter in term and slot not in place.divided and not follows:
                raise NeedsWhole(f"its input {slot}, {place.node.inputs[slot]!r}, is the same on all parts")
        if letter is None:
            raise NeedsWhole("one of its inputs is divided along an axis that is no channel")
    inputs = [_read(place, slot, term, letter, blocks) for slot, term in enumerate(terms)]
    place.write(inputs, Divided(made.index(letter), blocks) if letter in made else SUMMAND)


def _read(place: Place, slot: int, term: Letters, letter: str | None, blocks: int) -> str:
    return place.read(slot, Divided(term.index(letter), blocks) if letter in term else SHARED)


def _with_bias_behind(place: Place, terms: Sequence[Letters], blocks: int, spatial: int = 0) -> None:
    """A sum over the parts, and then what is added to it, once."""
    draft, node = place.draft, place.node
    letter = INPUTS if INPUTS in terms[0] else INNER
    inputs = [_read(place, slot, term, letter, blocks) for slot, term in enumerate(terms)]
    total = draft.summand(place.with_inputs(inputs, {}), f"{node.outputs[0]}.of_part")
    bias = place.read(2, WHOLE)
    if spatial:
        axes = draft.constant(np.arange(1, spatial + 1), f"{node.name}.axes")
        bias = draft.helper("Unsqueeze", [bias, axes], f"{node.name}.bias_by_channel")
    beta = float(place.site.attribute("beta", 1.0))
    if beta != 1:
        known = place.site.inputs[2]
        assert known is not None
        factor = draft.constant(known.dtype.type(beta), f"{node.name}.beta")
        bias = draft.helper("Mul", [bias, factor], f"{node.name}.bias")
    added = type(node)("Add", (total, bias), node.outputs, name=draft.named(f"{node.name}.with_bias"))
    draft.write(added, [WHOLE])


def _in_groups(place: Place, groups: int, letter: str | None) -> None:
    """Every part has its groups: their channels, filters and biases."""
    if letter == INPUTS:
        raise NeedsWhole(f"its channels are in {groups} groups: divide it by ByOutputChannels()")
    held = place.layouts[0]
    if groups % place.parts or (letter is None and held != Divided(1)):
        raise NeedsWhole(f"it has {groups} groups, which {place.parts} parts do not divide")
    inputs = [place.read(0, Divided(1)), place.read(1, Divided(0)), place.read(2, Divided(0))]
    place.write(inputs, Divided(1), changed={"group": groups // place.parts})
