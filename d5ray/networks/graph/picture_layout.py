"""Layout of a graph's picture: nodes in layers from the top, in as many columns as fit best

Sugiyama, Tagawa and Toda, Methods for visual understanding of hierarchical system structures, 1981: layers by
the longest path, order within a layer by the mean place of the neighbours, then places as near to those of
the neighbours as order and widths allow.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

Item = Hashable  # a box, or a place through which a line runs

BOX_WIDTH, BOX_HEIGHT = 214.0, 44.0  # in pixels; so are all lengths
LINE_WIDTH = 16.0  # of what a line takes among boxes
LAYER_HEIGHT = 66.0
GUTTER = 34.0  # between columns
ASPECT = 1.5  # wanted: width over height
SWEEPS = 8


@final
@dataclass(frozen=True)
class Layout:
    """The middle of every item, the ways between them, and the size of the whole.

    places: (x, y) of a box or of a waypoint. lines: from item to item, for every tensor that is read. column:
    in which column an item is; column_ends: where the columns' boxes begin and end, (left, right).
    """

    places: Mapping[Item, tuple[float, float]]
    lines: tuple[tuple[Item, Item, str], ...]
    column: Mapping[Item, int]
    column_ends: tuple[tuple[float, float], ...]
    width: float
    height: float


def layout(boxes: Sequence[str], edges: Iterable[tuple[str, str, str]]) -> Layout:
    """The positions of boxes. boxes: in an order in which each follows those that lead to it.

    edges: (from, to, tensor). A tensor that several boxes read is one line that forks.
    """
    wanted = list(dict.fromkeys(edges))
    layer = _layers(boxes, wanted)
    lines = _lines(wanted, layer)
    rows: list[list[Item]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for item in dict.fromkeys([*boxes, *(end for line in lines for end in line[:2])]):
        rows[_layer_of(item, layer)].append(item)
    above, below = _neighbours(lines)
    _order(rows, above, below)
    x = _spread(rows, above, below)
    return _folded(rows, x, lines)


def _layers(boxes: Sequence[str], edges: Sequence[tuple[str, str, str]]) -> dict[str, int]:
    before: dict[str, list[str]] = {}
    for source, target, _ in edges:
        before.setdefault(target, []).append(source)
    layer: dict[str, int] = {}
    for box in boxes:
        layer[box] = max((layer[each] + 1 for each in before.get(box, [])), default=0)
    first: dict[str, int] = {}
    for source, target, _ in edges:
        first[source] = min(first.get(source, layer[target]), layer[target])
    for box in boxes:
        if box not in before and box in first:  # what comes from outside stands where it is first read
            layer[box] = first[box] - 1
    return layer


def _lines(
    edges: Sequence[tuple[str, str, str]], layer: Mapping[str, int]
) -> tuple[tuple[Item, Item, str], ...]:
    """Every edge as pieces from one layer to the next; those of one tensor share theirs."""
    found: dict[tuple[Item, Item, str], None] = {}
    for source, target, tensor in edges:
        last: Item = source
        for between in range(layer[source] + 1, layer[target]):
            found[last, (tensor, between), tensor] = None
            last = (tensor, between)
        found[last, target, tensor] = None
    return tuple(found)


def _layer_of(item: Item, layer: Mapping[str, int]) -> int:
    return item[1] if isinstance(item, tuple) else layer[item]  # type: ignore[index]  # a box is a text


def _neighbours(
    lines: Iterable[tuple[Item, Item, str]],
) -> tuple[dict[Item, list[Item]], dict[Item, list[Item]]]:
    above: dict[Item, list[Item]] = {}
    below: dict[Item, list[Item]] = {}
    for upper, lower, _ in lines:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    return above, below


def _order(
    rows: list[list[Item]], above: Mapping[Item, list[Item]], below: Mapping[Item, list[Item]]
) -> None:
    """Sort every row by where its neighbours stand, downwards and upwards in turn."""
    for sweep in range(SWEEPS):
        near, walk = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        index: dict[Item, float] = {}
        for row in walk:
            own = {item: place for place, item in enumerate(row)}
            row.sort(key=lambda item: _mean([index[each] for each in near.get(item, [])], own[item]))
            index.update({item: place - len(row) / 2 for place, item in enumerate(row)})


def _spread(
    rows: Sequence[Sequence[Item]], above: Mapping[Item, list[Item]], below: Mapping[Item, list[Item]]
) -> dict[Item, float]:
    """The middle of every item, as near to its neighbours' as the others of its row allow."""
    x: dict[Item, float] = {}
    for row in rows:
        x.update(zip(row, _apart(row, [0.0] * len(row)), strict=True))
    for sweep in range(SWEEPS):
        near, walk = (above, rows) if sweep % 2 == 0 else (below, rows[::-1])
        for row in walk:
            wanted = [_mean([x[each] for each in near.get(item, [])], x[item]) for item in row]
            x.update(zip(row, _apart(row, wanted), strict=True))
    return x


def _apart(row: Sequence[Item], wanted: Sequence[float]) -> list[float]:
    """The nearest places in squares that keep order and distances (pool adjacent violators)."""
    offsets, pools = [0.0], []
    for first, second in pairwise(row):
        offsets.append(offsets[-1] + (_width(first) + _width(second)) / 2 + 14.0)
    for place, offset in zip(wanted, offsets, strict=False):
        pools.append([place - offset, 1.0])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, count = pools.pop()
            pools[-1] = [
                (pools[-1][0] * pools[-1][1] + mean * count) / (pools[-1][1] + count),
                pools[-1][1] + count,
            ]
    found = [mean for mean, count in pools for _ in range(int(count))]
    return [mean + offset for mean, offset in zip(found, offsets, strict=False)]


def _width(item: Item) -> float:
    return LINE_WIDTH if isinstance(item, tuple) else BOX_WIDTH


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _folded(
    rows: Sequence[Sequence[Item]], x: Mapping[Item, float], lines: tuple[tuple[Item, Item, str], ...]
) -> Layout:
    """The rows in columns, cut where few lines cross, as near to the wanted aspect as there is."""
    choices = [_columns(rows, x, lines, count) for count in range(1, max(1, len(rows) // 6) + 1)]
    return min(choices, key=lambda each: abs(each.width / each.height - ASPECT))


def _columns(
    rows: Sequence[Sequence[Item]],
    x: Mapping[Item, float],
    lines: tuple[tuple[Item, Item, str], ...],
    count: int,
) -> Layout:
    cuts = _cuts(_crossing(rows, lines), count)
    places: dict[Item, tuple[float, float]] = {}
    column: dict[Item, int] = {}
    ends = []
    left = 0.0
    for number, (begin, end) in enumerate(pairwise(cuts)):
        items = [item for row in rows[begin:end] for item in row]
        lowest = min((x[item] - _width(item) / 2 for item in items), default=0.0)
        highest = max((x[item] + _width(item) / 2 for item in items), default=0.0)
        for depth, row in enumerate(rows[begin:end]):
            for item in row:
                places[item] = (left + x[item] - lowest, LAYER_HEIGHT * depth + BOX_HEIGHT / 2)
                column[item] = number
        ends.append((left, left + highest - lowest))
        left = ends[-1][1] + GUTTER
    tallest = max(end - begin for begin, end in pairwise(cuts))
    return Layout(places, lines, column, tuple(ends), left - GUTTER, LAYER_HEIGHT * tallest)


def _crossing(rows: Sequence[Sequence[Item]], lines: Iterable[tuple[Item, Item, str]]) -> list[int]:
    """The number of lines that end in a row, whose pieces all begin in the row above."""
    row = {item: place for place, items in enumerate(rows) for item in items}
    found = [0] * len(rows)
    for _, lower, _ in lines:
        found[row[lower]] += 1
    return found


def _cuts(crossing: Sequence[int], count: int) -> list[int]:
    """The rows at which columns begin, and the end: near to even ones, where few lines cross."""
    cuts = [0]
    for number in range(1, count):
        even = round(len(crossing) * number / count)
        near = [place for place in range(even - 4, even + 5) if cuts[-1] < place < len(crossing)]
        if near:
            cuts.append(min(near, key=lambda place: (crossing[place], abs(place - even))))
    return [*cuts, len(crossing)]
