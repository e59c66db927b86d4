"""Layouts of a graph's picture: on a circle, a grid, around a hub, in columns, as a tree"""

import math

Point = tuple[float, float]  # x to the right, y downward


def circle(agents: int) -> list[Point]:
    """Clockwise, 0 on top, at distance 1 from the origin; a single one at the origin."""
    if agents == 1:
        return [(0.0, 0.0)]
    turns = [2 * math.pi * rank / agents for rank in range(agents)]
    return [(math.sin(turn), -math.cos(turn)) for turn in turns]


def hub(agents: int, center: int) -> list[Point]:
    """The positions of a star: one in the middle, the others clockwise around it."""
    around = circle(agents - 1) if agents > 2 else [(0.0, 1.0)] * (agents - 1)
    around.insert(center, (0.0, 0.0))
    return around


def grid(rows: int, columns: int) -> list[Point]:
    """Row by row, at distance 1."""
    return [(float(column), float(row)) for row in range(rows) for column in range(columns)]


def cube(agents: int) -> list[Point]:
    """The corners of a hypercube by their bits: three bits make a cube, three more a cube of cubes."""
    edges = [
        (1 + 0j, 1j, 0.45 - 0.4j)[bit % 3] * (2.3 + 0.35j) ** (bit // 3) for bit in range(agents.bit_length())
    ]
    corners = [sum(edge for bit, edge in enumerate(edges) if rank >> bit & 1) for rank in range(agents)]
    return [(complex(corner).real, complex(corner).imag) for corner in corners]


def columns(left: int, right: int) -> list[Point]:
    """The first `left` in one column, the others in another, each column centered."""
    between = 0.6 * max(left, right)
    sides = ((0.0, left), (between, right))
    return [(x, index - (count - 1) / 2) for x, count in sides for index in range(count)]


def tree(parents: list[int]) -> list[Point]:
    """A row per level, the root on top, every parent above the middle of its leaves.

    parents: by rank; that of 0 is ignored, every other is smaller than its child.
    """
    count = len(parents)
    leaves = [0] * count  # below each, or itself
    for rank in reversed(range(count)):
        leaves[rank] = max(1, leaves[rank])
        if rank:
            leaves[parents[rank]] += leaves[rank]
    level, start, taken = [0] * count, [0] * count, [0] * count
    for rank in range(1, count):
        parent = parents[rank]
        level[rank] = level[parent] + 1
        start[rank] = start[parent] + taken[parent]
        taken[parent] += leaves[rank]
    return [(start[rank] + leaves[rank] / 2, float(level[rank])) for rank in range(count)]
