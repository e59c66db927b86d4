"""Planned divisions: the operators for each kind of division, and what must be divisible"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from d5ray.errors import ConfigurationError
from d5ray.kits.parallel.splitting import rules_shapes
from d5ray.kits.parallel.splitting.carrying import carried
from d5ray.kits.parallel.splitting.divisions import (
    DIVISIONS,
    ByColumns,
    ByHeads,
    ByInputChannels,
    ByOutputChannels,
    ByRows,
    BySamples,
    Division,
)
from d5ray.kits.parallel.splitting.draft import Draft
from d5ray.kits.parallel.splitting.layouts import Divided
from d5ray.kits.parallel.splitting.rules import RULES, convolution, product
from d5ray.kits.parallel.splitting.split_node import SplitNode
from d5ray.networks.axes.axis_map import COLUMNS, HEADS, INNER, INPUTS, OUTPUTS, CannotDivide, output_shape
from d5ray.networks.axes.operators import POINTWISE
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node

MOST_NAMES = 8  # of divisors in an error


def divide(draft: Draft, node: Node, division: Division) -> None:
    """Let the part compute its share of a node. Raises `ConfigurationError` where that cannot be."""
    rule = _RULES[type(division)].get("" if node.domain else node.type)
    if rule is None:
        raise ConfigurationError(
            f"the node {node} cannot be divided by {division!r}, which is for "
            f"{_listed(_RULES[type(division)])}; {_ways_of(node)}"
        )
    try:
        rule(draft, node, division)
    except CannotDivide as error:
        raise ConfigurationError(f"the node {node} cannot be divided by {division!r}: {error}") from error


def meant(network: Network, name: str, division: Division) -> Node:
    """The node that a plan names; of a product and the addition of its bias, the product.

    Raises `ConfigurationError` where there is none of this name.
    """
    node = network.node(name)
    if node.type != "Add" or not isinstance(division, ByColumns | ByRows):
        return node
    makers = [network.producer(each) for each in node.inputs]
    products = [each for each in makers if each is not None and each.type == "MatMul"]
    return products[0] if len(products) == 1 else node


def check_division(name: str, division: object) -> None:
    """Raise `ConfigurationError` for what is no way to divide."""
    if not isinstance(division, DIVISIONS):
        raise ConfigurationError(
            f"the plan divides {name!r} by {division!r}: give one of "
            f"{', '.join(f'{each.__name__}()' for each in DIVISIONS)}"
        )


def _columns(draft: Draft, node: Node, division: ByColumns) -> None:
    place = SplitNode(draft, node)
    size = _sizes(place)[1]
    blocks = division.blocks or _blocks_behind(draft.network, node)
    _check(place, "columns", size, blocks)
    product(place, COLUMNS, blocks)


def _rows(draft: Draft, node: Node, division: ByRows) -> None:
    place = SplitNode(draft, node)
    _check(place, "rows", _sizes(place)[0])
    product(place, INNER)


def _sizes(place: SplitNode) -> Sequence[Any]:
    """The sizes of a product's second matrix: rows and columns."""
    shape = place.shape(1)
    if len(shape) < 2:
        raise CannotDivide("it multiplies vectors")
    rows, columns = shape[-2:]
    return (columns, rows) if place.context.attribute("transB", 0) else (rows, columns)


def _table_columns(draft: Draft, node: Node, division: ByColumns) -> None:
    place = SplitNode(draft, node)
    _check(place, "columns", place.shape(0)[-1], division.blocks or 1)
    rules_shapes.gather_columns(place, division.blocks)


def _table_rows(draft: Draft, node: Node, division: ByRows) -> None:
    place = SplitNode(draft, node)
    shape = place.shape(0)
    _check(place, "rows", shape[place.axis("axis", 0, len(shape))])
    rules_shapes.gather_rows(place)


def _output_channels(draft: Draft, node: Node, division: ByOutputChannels) -> None:
    place = SplitNode(draft, node)
    groups = int(place.context.attribute("group", 1))
    if groups > 1:
        _check(place, "groups", groups)
    else:
        _check(place, "output channels", place.shape(1)[0 if node.type == "Conv" else 1])
    convolution(place, OUTPUTS)


def _input_channels(draft: Draft, node: Node, division: ByInputChannels) -> None:
    place = SplitNode(draft, node)
    if int(place.context.attribute("group", 1)) == 1:
        _check(place, "input channels", place.shape(1)[1 if node.type == "Conv" else 0])
    convolution(place, INPUTS)


def _heads(draft: Draft, node: Node, division: ByHeads) -> None:
    place = SplitNode(draft, node)
    flat = place.rank(0) == 3
    for name, slot, what in (("q_num_heads", 0, "heads"), ("kv_num_heads", 1, "heads of keys and values")):
        _check(place, what, int(place.context.required(name)) if flat else place.shape(slot)[1])
    carried(place, HEADS)


def _samples(draft: Draft, node: Node, division: BySamples) -> None:
    slot = 1 if node.type == "Gather" and draft.is_flexible(node.inputs[0]) else 0
    place = SplitNode(draft, node, {slot: Divided(0)})
    size = place.shape(slot)[0] if place.shape(slot) else 1
    if isinstance(size, int):
        _check(place, "samples", size)
    RULES[node.type](place)


Planned = Callable[[Draft, Node, Any], None]
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_RULES: Mapping[type, Mapping[str, Planned]] = {
    ByColumns: {"MatMul": _columns, "Gemm": _columns, "Gather": _table_columns},
    ByRows: {"MatMul": _rows, "Gemm": _rows, "Gather": _table_rows},
    ByOutputChannels: dict.fromkeys(_CONVOLUTIONS, _output_channels),
    ByInputChannels: dict.fromkeys(_CONVOLUTIONS, _input_channels),
    ByHeads: {"Attention": _heads},
    BySamples: dict.fromkeys(RULES, _samples),
}


def _check(place: SplitNode, what: str, size: object, blocks: int = 1) -> None:
    """Raise `ConfigurationError` where the parts do not divide that many, and name those numbers that do."""
    if not isinstance(size, int):
        raise CannotDivide(f"how many {what} it has is not known before it runs")
    if size % (place.parts * blocks) == 0:
        return
    within = f" in {blocks} blocks" if blocks > 1 else ""
    if size % blocks:
        raise ConfigurationError(
            f"the node {place.node} has {size} {what}, which are not {blocks} equal blocks: give another "
            "number of blocks"
        )
    share = size // blocks
    divisors = [str(each) for each in range(1, share + 1) if share % each == 0]
    shown = ", ".join(divisors[:MOST_NAMES]) + (f", … or {share}" if len(divisors) > MOST_NAMES else "")
    raise ConfigurationError(
        f"the node {place.node} has {size} {what}{within}, which {place.parts} parts do not divide: take one "
        f"of {shown} parts, or leave it whole"
    )


def _blocks_behind(network: Network, node: Node) -> int:
    """The number of equal tensors that a Split makes of the columns, past what computes value by value."""
    readers, waiting, seen = network.graph.readers(), [node.outputs[0]], set()
    while waiting:
        name = waiting.pop()
        for reader in readers.get(name, []):
            if reader.domain or reader.name in seen:
                continue
            seen.add(reader.name)
            if reader.type == "Split" and reader.inputs[0] == name:
                if (found := _equal_pieces(network, reader)) is not None:
                    return found
            elif reader.type in (*POINTWISE, "Dropout"):
                waiting.append(reader.outputs[0])
    return 1


def _equal_pieces(network: Network, split: Node) -> int | None:
    """The number of equal pieces into which a Split takes the last axis apart; None if they are not equal."""
    context = network.site(split)
    try:
        shapes = [output_shape(context, place) for place in range(len(split.outputs))]
    except CannotDivide:
        return None
    axis = int(context.attribute("axis", 0)) % len(shapes[0])
    alike = len({shape[axis] for shape in shapes}) == 1
    return len(shapes) if alike and axis == len(shapes[0]) - 1 else None


def _ways_of(node: Node) -> str:
    ways = [kind for kind, rules in _RULES.items() if node.type in rules and not node.domain]
    if not ways:
        return "this operator has no rule: it is computed whole on every part; leave it out of the plan"
    return f"{node.type} takes {', '.join(f'{kind.__name__}()' for kind in ways)}"


def _listed(rules: Mapping[str, Planned]) -> str:
    names = sorted(rules)
    shown = ", ".join(names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown} and {len(names) - MOST_NAMES} others"
