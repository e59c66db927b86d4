"""A graph as a picture: an SVG that needs nothing else, with a box for every node"""

import html
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.graph import Graph
from d5ray.networks.graph.picture_layout import BOX_HEIGHT, BOX_WIDTH, GUTTER, Item, Layout, layout
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.catalogue import GROUPS

Descriptors = Mapping[str, TensorDescriptor]

MARGIN, HEADER = 24.0, 62.0  # in pixels; so are all lengths
INK, FAINT, LINE, PAPER = "#1a202c", "#52606d", "#7b8794", "#ffffff"
# Okabe and Ito's colours, lightened, so that black text stands on them
COLOURS = {
    "convolution": "#a6cfe8", "products": "#a6cfe8", "attention": "#a6cfe8", "recurrent": "#a6cfe8",
    "normalization": "#f3d9a0", "activations": "#a8dcc8", "softmaxes": "#a8dcc8", "pooling": "#e6bcd3",
    "reductions": "#e6bcd3", "losses": "#efb59a", "dropout": "#e3e6ea",
}  # fmt: skip
OTHER, OUTSIDE, CUSTOM = "#eef0f3", "#ffffff", "#f6f0a8"
_GROUP = {type: group for group, types in GROUPS.items() for type in types}


def picture(graph: Graph, known: Descriptors, path: str | PathLike[str] | None = None) -> str:
    """The graph as an SVG, which is also written to `path`.

    A box has the node's type, its name and the shapes of its parameters, and the shape of what it makes.
    Constants are not drawn; parameters stand in the boxes that read them.
    """
    placed = layout(*_structure(graph))
    width, height = max(placed.width + 2 * MARGIN, 420.0), placed.height + HEADER + MARGIN
    shift = ((width - placed.width) / 2, HEADER)
    nodes = {f"node {node.name}": node for node in graph.nodes}
    body: list[str] = []
    for upper, lower, tensor in placed.lines:
        body.append(_line(placed, upper, lower, tensor, known))
    for item in placed.places:
        if isinstance(item, str):
            body.extend(_box(item, placed.places[item], nodes.get(item), graph, known))
    text = "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="system-ui, Helvetica, Arial, sans-serif">',
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
            *_header(graph),
            f'<g transform="translate({shift[0]:.1f} {shift[1]:.1f})">',
            *body,
            "</g>",
            "</svg>\n",
        ]
    )
    if path is not None:
        try:
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"the picture cannot be written to {str(path)!r}: {error.strerror}"
            ) from error
    return text


def _structure(graph: Graph) -> tuple[list[str], list[tuple[str, str, str]]]:
    """Boxes for inputs, nodes and outputs, and the tensors between them."""
    source = {name: f"input {name}" for name in graph.inputs}
    source |= {name: f"node {node.name}" for node in graph.nodes for name in node.outputs if name}
    boxes = [f"input {name}" for name in graph.inputs] + [f"node {node.name}" for node in graph.nodes]
    boxes += [f"output {name}" for name in graph.outputs]
    edges = [
        (source[name], f"node {node.name}", name)
        for node in graph.nodes
        for name in node.inputs
        if name in source
    ]
    edges += [(source[name], f"output {name}", name) for name in graph.outputs if name in source]
    return boxes, edges


def _header(graph: Graph) -> Iterator[str]:
    count = sum(value.size for value in graph.parameters.values())
    facts = f"{len(graph.nodes)} nodes · {count:,} parameters"
    title = _short(graph.name, 44)
    yield f'<text x="{MARGIN}" y="28" font-size="16" font-weight="600" fill="{INK}">{title}</text>'
    yield f'<text x="{MARGIN}" y="47" font-size="12" fill="{FAINT}">{facts}</text>'


def _box(
    item: str, place: tuple[float, float], node: Node | None, graph: Graph, known: Descriptors
) -> Iterator[str]:
    kind, name = item.split(" ", 1)
    left, top = place[0] - BOX_WIDTH / 2, place[1] - BOX_HEIGHT / 2
    if node is None:
        title, facts, colour, dash = (
            name,
            f"{kind}  {known.get(name, '')}",
            OUTSIDE,
            ' stroke-dasharray="4 3"',
        )
        hint = f"{kind} {name}: {known.get(name, 'of unknown type')}"
    else:
        title, dash = f"{node.domain}.{node.type}" if node.domain else node.type, ""
        facts = _facts(node, graph, known)
        colour = CUSTOM if node.domain not in ("", "d5ray") else COLOURS.get(_GROUP.get(node.type, ""), OTHER)
        hint = _hint(node, known)
    yield f"<g><title>{html.escape(hint)}</title>"
    yield (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" '
        f'fill="{colour}" stroke="{LINE}"{dash}/>'
    )
    yield (
        f'<text x="{left + 9:.1f}" y="{top + 18:.1f}" font-size="12" font-weight="600" fill="{INK}">'
        f"{_short(title, 24)}</text>"
    )
    if node is not None and node.name != node.type and len(title) < 22:
        room = int((BOX_WIDTH - 24 - 8 * len(title)) / 5.8)
        yield (
            f'<text x="{left + BOX_WIDTH - 8:.1f}" y="{top + 18:.1f}" font-size="9.5" text-anchor="end" '
            f'fill="{FAINT}">{_short_end(node.name, room)}</text>'
        )
    shown = _short(facts, 34)
    yield f'<text x="{left + 9:.1f}" y="{top + 35:.1f}" font-size="10.5" fill="{INK}">{shown}</text></g>'


def _facts(node: Node, graph: Graph, known: Descriptors) -> str:
    """The parameter that makes the node what it is, and the shape that it gives."""
    weights = [graph.parameters[name].shape for name in node.inputs if name in graph.parameters]
    largest = max(weights, key=len, default=())
    shape = _shape(known.get(next((name for name in node.outputs if name), "")))
    return f"{'×'.join(map(str, largest))} → {shape}" if largest else f"→ {shape}"


def _shape(descriptor: TensorDescriptor | None) -> str:
    if descriptor is None or descriptor.shape is None:
        return "?"
    sizes = ", ".join("?" if size is None else str(size) for size in descriptor.shape)
    return f"({sizes})"


def _hint(node: Node, known: Descriptors) -> str:
    """The text shown where the pointer rests: all there is to know of the node."""
    lines = [str(node)]
    lines += [f"reads {name}: {known.get(name, '?')}" for name in node.inputs if name]
    lines += [f"makes {name}: {known.get(name, '?')}" for name in node.outputs if name]
    lines += [f"{key} = {str(value)[:80]}" for key, value in node.attributes.items()]
    return "\n".join(lines)


def _line(placed: Layout, upper: Item, lower: Item, tensor: str, known: Descriptors) -> str:
    (x0, y0), (x1, y1) = placed.places[upper], placed.places[lower]
    y0, y1 = y0 + BOX_HEIGHT / 2, y1 - BOX_HEIGHT / 2
    first, second = placed.column[upper], placed.column[lower]
    if first == second:
        bend = (y1 - y0) * 0.5
        way = f"M{x0:.1f} {y0:.1f} C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y1 - bend:.1f} {x1:.1f} {y1:.1f}"
    else:  # down, across the gutter between the columns, up to the top, and down again
        gutter = placed.column_ends[first][1] + GUTTER / 2 + (_lane(tensor) - 2) * 4.0
        way = (
            f"M{x0:.1f} {y0:.1f} V{y0 + 9:.1f} Q{x0:.1f} {y0 + 15:.1f} {x0 + 6:.1f} {y0 + 15:.1f} "
            f"H{gutter - 6:.1f} Q{gutter:.1f} {y0 + 15:.1f} {gutter:.1f} {y0 + 9:.1f} V-7 "
            f"Q{gutter:.1f} -13 {gutter + 6:.1f} -13 H{x1 - 6:.1f} Q{x1:.1f} -13 {x1:.1f} -7 V{y1:.1f}"
        )
    if isinstance(lower, str):
        end = f'<path d="M{x1:.1f} {y1:.1f} l-3.5 -7 h7 z" fill="{LINE}"/>'
    else:  # straight through the row
        way, end = f"{way} v{BOX_HEIGHT}", ""
    hint = html.escape(f"{tensor}: {known.get(tensor, 'of unknown type')}")
    return (
        f'<g><title>{hint}</title><path d="{way}" fill="none" stroke="{LINE}" stroke-width="1.3"/>{end}</g>'
    )


def _lane(tensor: str) -> int:
    """One of five lanes of a gutter, the same one for a tensor every time."""
    return sum(tensor.encode()) % 5


def _short(text: str, most: int) -> str:
    return html.escape(text if len(text) <= most else text[: most - 1] + "…")


def _short_end(text: str, most: int) -> str:
    """The end of a name says more than its beginning."""
    return html.escape(text if len(text) <= most else "…" + text[1 - most :])
